#include "strategy/lanes.h"

#include <chrono>
#include <exception>

#include "base/log.h"
#include "base/thread.h"
#include "lockstep/error.h"
#include "sys/topology.h"
#include "tensor/operator_threads.h"

namespace lockstep::detail {

namespace {
constexpr std::chrono::seconds kStallReport(10);
}

Lanes::Lanes(LaneOptions options)
    : options_(std::move(options)),
      spin_(SpinPolicy::for_computing_threads(options_.count * options_.threads,
                                              sys::usable_processors())) {
  for (int i = 0; i < count(); ++i) lanes_.push_back(std::make_unique<Lane>());
  for (int i = 1; i < count(); ++i) {
    lane(i).thread = start_thread(
        options_.name + "-" + std::to_string(i),
        [this, i](const std::stop_token& stop) { serve(i, stop); },
        // serve() itself cannot fail: tasks do not throw.
        [](const Status& why) { log_error("a lane ended: {}", why.message()); });
  }
}

Lanes::~Lanes() {
  for (int i = 1; i < count(); ++i) lane(i).thread.request_stop();
  // A lane at the end of its last run still wakes all others: none goes before all have ended.
  for (int i = 1; i < count(); ++i) lane(i).thread.join();
}

void Lanes::serve(int index, const std::stop_token& stop) {
  // First: the threads that OpenMP starts for this one inherit its cores. Those that lockstep
  // starts for a dataset, say, do not.
  if (!options_.cores.empty()) {
    keep_processors_for_new_threads();
    const Status pinned = sys::pin_this_thread(options_.cores[static_cast<std::size_t>(index)]);
    if (!pinned.ok()) log_warning("lane {} is not pinned: {}", index, pinned.message());
  }
  tensor::set_operator_threads(options_.threads);
  Lane& self = lane(index);
  while (!stop.stop_requested()) {
    // Idle until the next run or the end; the stop request ends the wait.
    self.gate.wait([&] { return self.task.load() != nullptr; }, Deadline::never(), spin_, stop);
    run_posted(index);
  }
}

bool Lanes::run_posted(int index) {
  const auto* task = lane(index).task.exchange(nullptr);
  if (task == nullptr) return false;
  (*task)(index);
  return true;
}

void Lanes::post(int index, const std::function<void(int)>& task) {
  lane(index).task.store(&task);
  lane(index).gate.notify();
}

void Lanes::park(int index, FunctionRef<bool()> resume, FunctionRef<void()> stalled) {
  Lane& self = lane(index);
  const auto ready = [&] { return self.task.load() != nullptr || resume(); };
  for (;;) {
    if (!self.gate.wait(ready, Deadline::after(kStallReport), spin_)) {
      stalled();
    } else if (!run_posted(index) && resume()) {
      return;
    }
  }
}

void Lanes::wake(int index) noexcept { lane(index).gate.notify(); }

void Lanes::wake_all() noexcept {
  for (int i = 0; i < count(); ++i) wake(i);
}

void Lanes::on_all(const std::function<void(int)>& work) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(count()));
  std::atomic<int> remaining = count() - 1;
  const auto guarded = [&](int index) {
    try {
      work(index);
    } catch (...) {
      errors[static_cast<std::size_t>(index)] = std::current_exception();
    }
  };
  Gate& done = lane(0).gate;
  const std::function<void(int)> task = [&](int index) {
    guarded(index);
    // With the last part done the caller goes on and this closure is no more: from there on only
    // the gate, which belongs to the lanes, may be touched.
    Gate* const gate = &done;
    if (remaining.fetch_sub(1) == 1) gate->notify();
  };
  for (int i = 1; i < count(); ++i) post(i, task);
  guarded(0);
  while (!done.wait([&] { return remaining.load() == 0; }, Deadline::after(kStallReport), spin_)) {
    log_warning("{} of {} lanes are still at work on a part of an operation", remaining.load(),
                count());
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

void Leadership::take(const std::string& what, Deadline deadline) {
  const std::thread::id self = std::this_thread::get_id();
  if (leader_.load() != self) {
    const auto free = [&] {
      std::thread::id nobody;
      return leader_.compare_exchange_strong(nobody, self);
    };
    while (!gate_.wait(free, earlier(Deadline::after(kStallReport), deadline))) {
      if (deadline.passed()) {
        throw Timeout(
            fmt::format("another thread's call of the same {} was not over in time", what));
      }
      log_warning("waiting for another thread's call of the same {}", what);
    }
  }
  ++depth_;
}

void Leadership::release() noexcept {
  if (--depth_ > 0) return;
  leader_.store(std::thread::id());
  gate_.notify();
}

}  // namespace lockstep::detail
