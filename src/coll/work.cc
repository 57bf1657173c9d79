#include "lockstep/coll/work.h"

#include "coll/work_state.h"
#include "transport/own_failure.h"

namespace lockstep::coll {

void Work::wait() {
  check_process(shared_->made_in);
  // The operation's own deadlines end it, and with it this wait.
  shared_->gate.wait([this] { return done(); }, Deadline::never());
  transport::naming_shortages(shared_->rank, [this] { raise_if_error(shared_->status); });
}

bool Work::wait_for(std::chrono::nanoseconds timeout) {
  check_process(shared_->made_in);
  if (!shared_->gate.wait([this] { return done(); }, Deadline::after(timeout))) return false;
  transport::naming_shortages(shared_->rank, [this] { raise_if_error(shared_->status); });
  return true;
}

bool Work::done() const noexcept { return shared_->over.load(std::memory_order_acquire); }

}  // namespace lockstep::coll
