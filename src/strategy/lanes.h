// Lanes: the threads of a strategy's replicas. Lane 0 is the thread that calls run(); the others
// are persistent threads with a name, a number of threads inside operations and, if asked for,
// cores of their own. A lane that has nothing to do, or is parked in a meeting, executes what is
// posted to it.
//
// Threads: post() and on_all() belong to the thread that leads (see Leadership), park() to the lane
// itself.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/function_ref.h"
#include "base/gate.h"
#include "sys/topology.h"

namespace lockstep::detail {

struct LaneOptions {
  int count = 1;  // lane 0 included
  std::string name;
  int threads = 1;  // inside an operation, of each lane
  /// One set a lane; empty: not pinned. Lane 0 belongs to the caller and stays where it is.
  std::vector<sys::CpuSet> cores = {};
};

class Lanes {
 public:
  explicit Lanes(LaneOptions options);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  [[nodiscard]] int count() const noexcept { return options_.count; }

  /// Lane `lane` (not 0) executes task(lane) soon. The task must live until it is done, must not
  /// throw, and says itself when it is done.
  void post(int lane, const std::function<void(int)>& task);

  /// On lane `lane`: waits until `resume` holds, executing what is posted meanwhile. `stalled` is
  /// called every ten seconds of waiting.
  void park(int lane, FunctionRef<bool()> resume, FunctionRef<void()> stalled);
  /// Makes a parked lane look at its condition again.
  void wake(int lane) noexcept;
  void wake_all() noexcept;

  /// Runs work(lane) on every lane, lane 0's part on the calling thread; returns when all are done.
  /// Rethrows the first exception in lane order. Only while the other lanes are idle or parked.
  void on_all(const std::function<void(int)>& work);

  [[nodiscard]] SpinPolicy spin() const noexcept { return spin_; }

 private:
  struct Lane {
    Gate gate;
    std::atomic<const std::function<void(int)>*> task = nullptr;
    std::jthread thread;
  };

  void serve(int lane, const std::stop_token& stop);
  bool run_posted(int lane);
  Lane& lane(int index) noexcept { return *lanes_[static_cast<std::size_t>(index)]; }

  LaneOptions options_;
  SpinPolicy spin_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // [0] has a gate only
};

/// The right to use something, a strategy's lanes first of all: one thread at a time, which may
/// take it again.
class Leadership {
 public:
  /// Timeout naming `what` if it is not free by then.
  void take(const std::string& what, Deadline deadline = Deadline::never());
  void release() noexcept;

 private:
  std::atomic<std::thread::id> leader_{};
  int depth_ = 0;  // of the leader
  Gate gate_;
};

/// Holds it for the length of a call.
class Leading {
 public:
  Leading(Leadership& leadership, const std::string& what, Deadline deadline = Deadline::never())
      : leadership_(leadership) {
    leadership_.take(what, deadline);
  }
  ~Leading() { leadership_.release(); }
  Leading(const Leading&) = delete;
  Leading& operator=(const Leading&) = delete;

 private:
  Leadership& leadership_;
};

}  // namespace lockstep::detail
