// What run(), merge_call() and reduce() cost beside a bare hand-off between threads and beside
// libtorch's own operations, and how close two replicas come to two threads that know nothing of
// each other. Exits 1 if a target is short.
// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "bench/strategy/training_step.h"
#include "bench/support/paired.h"
#include "lockstep/lockstep.h"

namespace lockstep::bench {
namespace {

MirroredOptions devices(int count) {
  MirroredOptions options;
  for (int i = 0; i < count; ++i) options.devices.emplace_back(fmt::format("CPU:{}", i));
  return options;
}

/// A thread that answers a counter with another: the least a hand-off can cost. It polls without a
/// pause, so it must not live while something else is measured.
class BareHandOff {
 public:
  BareHandOff()
      : thread_([this](const std::stop_token& stop) {
          for (long seen = 0; !stop.stop_requested();) {
            const long asked = asked_.load(std::memory_order_acquire);
            if (asked == seen) continue;
            seen = asked;
            answered_.store(asked, std::memory_order_release);
          }
        }) {}

  void round() {
    const long mine = asked_.load(std::memory_order_relaxed) + 1;
    asked_.store(mine, std::memory_order_release);
    while (answered_.load(std::memory_order_acquire) != mine) {
    }
  }

 private:
  alignas(64) std::atomic<long> asked_ = 0;
  alignas(64) std::atomic<long> answered_ = 0;
  std::jthread thread_;
};

void report(const char* name, const char* other, int calls, const PairedResult& result) {
  std::printf("%-26s %9.2f us   %-34s %9.2f us   ratio %.3f [%.3f .. %.3f]\n", name,
              1e6 * result.ours_seconds / calls, other, 1e6 * result.other_seconds / calls,
              result.median, result.lower_quartile, result.upper_quartile);
  std::fflush(stdout);
}

template <class F>
std::function<void()> repeat(int calls, F fn) {
  return [calls, fn]() mutable {
    for (int i = 0; i < calls; ++i) fn();
  };
}

constexpr int kCalls = 2000;

void overheads() {
  {
    MirroredStrategy one(devices(1));
    std::atomic<int> count = 0;
    report("run, 1 replica, empty step", "a function call", kCalls,
           paired_ratio({}, repeat(kCalls, [&] { one.run([&] { ++count; }); }),
                        repeat(kCalls, [&] { ++count; })));
  }
  MirroredStrategy two(devices(2));
  {
    const auto bare = [] {
      BareHandOff other;
      for (int i = 0; i < kCalls; ++i) other.round();
    };
    report("run, 2 replicas, empty step", "bare hand-off to a thread and back", kCalls,
           paired_ratio({}, repeat(kCalls, [&] { two.run([] {}); }), bare));
    // Inside one run, so that only the meetings count.
    const auto merges = [&] {
      two.run([](ReplicaContext& replica) {
        for (int i = 0; i < kCalls; ++i) replica.merge_call([](Strategy&) {});
      });
    };
    report("one merge_call, 2 replicas", "bare hand-off to a thread and back", kCalls,
           paired_ratio({}, merges, bare));
  }
  const PerReplica<Tensor> values =
      two.distribute_values_from_function([](const ValueContext&) { return at::randn({1 << 20}); });
  constexpr int kReduces = 20;
  Tensor result;
  report("reduce sum, 2 x 4 MiB", "at::add", kReduces,
         paired_ratio({}, repeat(kReduces, [&] { result = two.reduce(ReduceOp::sum, values); }),
                      repeat(kReduces, [&] { result = at::add(values[0], values[1]); })));
}

// Where the allocator happens to put a net's memory moves a step's time by some percent, so several
// trainers of each kind are made and measured; the median of their ratios counts.
void training(Targets& targets, const char* name, NetKind kind, int steps) {
  constexpr int kTrainers = 9;
  std::vector<PairedResult> results;
  for (int i = 0; i < kTrainers; ++i) {
    const auto ours = connected_trainer(kind);
    const auto other = unconnected_trainer(kind);
    results.push_back(paired_ratio(
        {}, [&] { ours->steps(steps); }, [&] { other->steps(steps); }));
    report(name, "two unconnected threads", steps, results.back());
  }
  std::sort(results.begin(), results.end(),
            [](const PairedResult& a, const PairedResult& b) { return a.median < b.median; });
  targets.add(std::string(name) + "_2_replicas_vs_unconnected", results[kTrainers / 2].median, 0.93,
              fmt::format("median of {} trainers' ratios, {:.3f} to {:.3f}", kTrainers,
                          results.front().median, results.back().median));
}

int run() {
  at::set_num_threads(1);
  Targets targets;
  overheads();
  training(targets, "mlp", NetKind::mlp, 10);
  training(targets, "cnn", NetKind::cnn, 5);
  return targets.finish();
}

}  // namespace
}  // namespace lockstep::bench

int main() { return lockstep::bench::run(); }
