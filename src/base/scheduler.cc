#include "base/scheduler.h"

namespace lockstep {

thread_local constinit Scheduler* Scheduler::current_ = nullptr;

Scheduler::Scope::Scope(Scheduler& scheduler) noexcept : before_(current_) {
  current_ = &scheduler;
  detail::virtual_clock = &scheduler;
}

Scheduler::Scope::~Scope() {
  current_ = before_;
  detail::virtual_clock = before_;
}

}  // namespace lockstep
