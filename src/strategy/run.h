// Run: one call of Strategy::run on several replicas, and the meetings (merge_call) inside it.
//
//   1. Every replica executes the body on its lane; replica 0 on the thread that called run().
//   2. A replica that calls merge_call parks. When all are parked, replica 0 executes its merge
//      function with the arguments of all, then everyone goes on. Parked lanes execute what the
//      merge function posts: parts of reductions, updates, a nested run.
//   3. A replica that returns while others are parked, or parks at another place than the others,
//      ends the run with a table of who did what.
//   4. The first exception in time ends the run: parked replicas are woken and unwind.
//
// Sequentially the same happens with one replica running at a time: the turn passes on when a
// replica parks or is done.
#pragma once

#include <ATen/ThreadLocalState.h>

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "lockstep/strategy.h"
#include "strategy/core.h"

namespace lockstep::detail {

class Run {
 public:
  using Body = std::function<void(ReplicaContext&)>;

  Run(StrategyCore& core, const RunOptions& options, const Body& body);

  /// On the thread that called run(): returns when every replica is over; rethrows.
  void execute();

  /// On the lane of `replica`.
  void merge(int replica, const MergeCall& call);

  /// A variable asked for inside the step function: replica 0 creates it, the others wait for it
  /// and get the same one, by canonical name and order.
  Variable shared_variable(int replica, const std::string& name,
                           const std::function<Variable()>& create);

  /// What a merge_call throws into a replica that must end because another one failed. Not a
  /// std::exception, so that a step function's own handlers let it pass.
  struct Stopped {};

 private:
  enum class At { running, parked, done };
  struct Replica {
    std::atomic<At> at = At::running;
    int merges = 0;
    MergeCall call{};
    std::map<std::string, std::size_t> variables_taken;  // by canonical name
  };

  void run_replica(int index);
  void lead();
  void finish(int index);
  void fail(int index, std::exception_ptr error);
  void fail_unequal(int index);
  void pass_turn(int index);
  [[nodiscard]] bool has_turn(int index) const;
  void wait(int index, FunctionRef<bool()> ready);
  [[nodiscard]] ThreadContext replica_context(int index, ReplicaContext& context) const;
  [[nodiscard]] bool same_place() const;
  [[nodiscard]] std::string table(const char* problem) const;
  void report_stall(int index) const;
  Replica& replica(int index) { return *replicas_[static_cast<std::size_t>(index)]; }

  StrategyCore& core_;
  const RunOptions& options_;
  const Body& body_;
  Lanes& lanes_;
  const int count_;
  const bool sequential_;
  const ThreadContext caller_;
  const at::ThreadLocalState torch_state_;

  std::vector<std::unique_ptr<Replica>> replicas_;
  std::atomic<int> parked_ = 0;
  std::atomic<int> returned_ = 0;  // bodies that are over
  std::atomic<int> done_ = 0;      // replicas that will not touch this object again
  std::atomic<int> turn_ = 0;      // sequential: who may run
  std::atomic<std::uint64_t> meetings_ = 0;
  std::atomic<bool> stop_ = false;

  Mutex mutex_;
  std::vector<std::exception_ptr> errors_ GUARDED_BY(mutex_);
  int first_error_ GUARDED_BY(mutex_) = -1;
  std::map<std::string, std::vector<Variable>> variables_ GUARDED_BY(mutex_);
};

}  // namespace lockstep::detail
