#include "coll/pump.h"

#include "transport/own_failure.h"

namespace lockstep::coll {

Pump::Pump(Executor& executor, const std::string& name)
    : executor_(executor),
      thread_(
          name, [this](const std::stop_token& stop) { run(stop); },
          [this](const Status& why) {
            transport::GroupEnd& end = executor_.end();
            end.fail(transport::is_own_shortage(why)
                         ? transport::own_failure(why, end.member(end.rank()))
                         : why);
          }) {}

Pump::~Pump() {
  thread_.request_stop();
  thread_.join();
}

void Pump::push(Queue works) noexcept {
  {
    const MutexLock lock(mutex_);
    queue_.splice(queue_.end(), works);
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
