#include "coll/farewell.h"

#include <atomic>
#include <chrono>
#include <list>
#include <memory>

#include "base/deadline.h"
#include "base/fork.h"
#include "base/gate.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "base/thread_scheduler.h"

namespace lockstep::coll {
namespace {

constexpr auto kMoment = std::chrono::seconds(1);

struct Kept {
  std::jthread thread;
  std::shared_ptr<std::atomic<bool>> over;
  std::function<bool()> leaving;
  std::uint32_t made_in = fork_era();
};

class Registry {
 public:
  ~Registry() {
    const Deadline deadline = Deadline::after(kMoment);
    const MutexLock lock(mutex_);
    forget_parents();
    for (Kept& kept : threads_) {
      if (kept.leaving()) gate_.wait([&] { return kept.over->load(); }, deadline);
      kept.thread.request_stop();
    }
    threads_.clear();  // joins
  }

  void add(std::string name, std::function<void(const std::stop_token&)> body,
           std::function<void(const Status&)> on_error, std::function<bool()> leaving) {
    const MutexLock lock(mutex_);
    forget_parents();
    std::erase_if(threads_, [](const Kept& kept) { return kept.over->load(); });
    auto over = std::make_shared<std::atomic<bool>>(false);
    // The body goes before the thread says that it is over: it may own what the thread used.
    auto run = [this, over, body = std::move(body)](const std::stop_token& stop) mutable {
      struct Over {
        Registry& registry;
        std::atomic<bool>& flag;
        ~Over() {
          flag.store(true);
          registry.gate_.notify();
        }
      } at_end{*this, *over};
      const auto once = std::move(body);
      once(stop);
    };
    auto thread = start_thread(std::move(name), std::move(run), std::move(on_error));
    threads_.push_back({std::move(thread), over, std::move(leaving)});
  }

 private:
  // The child of a fork has its parent's list, but not the threads: joining them would never end.
  void forget_parents() REQUIRES(mutex_) {
    for (auto kept = threads_.begin(); kept != threads_.end();) {
      const auto next = std::next(kept);
      if (kept->made_in != forks()) parents_.splice(parents_.end(), threads_, kept);
      kept = next;
    }
  }

  Gate gate_;
  Mutex mutex_;
  std::list<Kept> threads_ GUARDED_BY(mutex_);
  std::list<Kept>& parents_ GUARDED_BY(mutex_) = *new std::list<Kept>;  // never destroyed
};

}  // namespace

void Farewell::keep(std::string name, std::function<void(const std::stop_token&)> body,
                    std::function<void(const Status&)> on_error, std::function<bool()> leaving) {
  if (ThreadScheduler* scheduler = ThreadScheduler::current()) {
    // It keeps its threads itself. They end by themselves: no simulated process ends before.
    scheduler->start(std::move(name), [body = std::move(body), on_error = std::move(on_error)] {
      try {
        body(std::stop_token());
      } catch (...) {
        on_error(Status::from_current_exception());
      }
    });
    return;
  }
  static Registry registry;
  registry.add(std::move(name), std::move(body), std::move(on_error), std::move(leaving));
}

}  // namespace lockstep::coll
