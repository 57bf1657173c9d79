#include "base/thread_scheduler.h"

namespace lockstep {

thread_local constinit ThreadScheduler* ThreadScheduler::current_ = nullptr;

ThreadScheduler::Scope::Scope(ThreadScheduler& scheduler) noexcept : before_(current_) {
  current_ = &scheduler;
  detail::virtual_clock = &scheduler;
}

ThreadScheduler::Scope::~Scope() {
  current_ = before_;
  detail::virtual_clock = before_;
}

}  // namespace lockstep
