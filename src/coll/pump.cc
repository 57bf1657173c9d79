#include "coll/pump.h"

namespace lockstep::coll {

Pump::Pump(Executor& executor, const std::string& name)
    : executor_(executor),
      thread_(
          name, [this](const std::stop_token& stop) { run(stop); },
          [this](const Status& why) { executor_.end().fail(why); }) {}

Pump::~Pump() {
  thread_.request_stop();
  thread_.join();
}

void Pump::push(std::shared_ptr<Work::Shared> work) {
  {
    const MutexLock lock(mutex_);
    queue_.push_back(std::move(work));
  }
  gate_.notify();
}

std::shared_ptr<Work::Shared> Pump::pop() {
  const MutexLock lock(mutex_);
  if (queue_.empty()) return nullptr;
  auto work = std::move(queue_.front());
  queue_.pop_front();
  return work;
}

void Pump::run(const std::stop_token& stop) {
  for (;;) {
    std::shared_ptr<Work::Shared> work;
    // The owner's stop request ends this wait.
    gate_.wait([&] { return (work = pop()) != nullptr; }, Deadline::never(), {}, stop);
    if (!work) return;
    work->finish(executor_.run_all(*work));
  }
}

}  // namespace lockstep::coll
