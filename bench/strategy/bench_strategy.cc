// What run(), merge_call() and reduce() cost beside a bare hand-off between threads and beside
// libtorch's own operations, and how close two replicas come to two threads that know nothing of
// each other. The process is tuned (lockstep/process_memory.h); with --defaults it is not, and the
// same rows have no targets. Exits 1 if a target is short.
// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/strategy/batch_norm_step.h"
#include "bench/strategy/parameter_check.h"
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
  std::printf("%-30s %9.2f us   %-34s %9.2f us   ratio %.3f [%.3f .. %.3f]\n", name,
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

enum class Memory { tuned, defaults };

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

/// Seconds of kCalls empty runs on two replicas while libtorch has so many threads.
double empty_runs(MirroredStrategy& strategy, int libtorch_threads) {
  at::set_num_threads(libtorch_threads);
  strategy.run([] {});
  // libtorch has just started threads, which poll before they sleep.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double taken = seconds(Timer::wall, repeat(kCalls, [&] { strategy.run([] {}); }));
  at::set_num_threads(1);
  return taken;
}

/// Only the rows of a tuned process have targets.
void add_row(Targets& targets, Memory memory, const std::string& name, const PairedResult& result,
             double required) {
  if (memory == Memory::tuned) {
    targets.add(name, result, required);
  } else {
    Targets::print(name + "_defaults", result);
  }
}

void empty_run_8_threads(Targets& targets, Memory memory) {
  MirroredStrategy two(devices(2));
  const PairedResult result = paired_ratio_timed(
      {}, [&] { return empty_runs(two, 8); }, [&] { return empty_runs(two, 1); });
  report("run, 8 libtorch threads", "run, 1 libtorch thread", kCalls, result);
  add_row(targets, memory, "empty_run_8_threads", result, 0.5);
}

// At most 0.3 of a step, so the default of GradientOptions::check_every, 100, costs at most 0.3 %.
void parameter_check(Targets& targets, Memory memory) {
  const PairedResult result = parameter_check_vs_step();
  report("check of 25 M parameters", "a step of the same net", 1, result);
  fmt::print("check_every = 100 costs {:.2f} % of the steps\n",
             result.ours_seconds / result.other_seconds);
  add_row(targets, memory, "parameter_check_vs_step", result, 1 / 0.3);
}

using MakeTrainer = std::function<std::unique_ptr<Trainer>()>;

/// What is measured as one target.
struct Contest {
  const char* name;
  const char* other;
  double required;
  MakeTrainer make_ours;
  MakeTrainer make_other;
  int steps;
};

// Where the allocator happens to put a net's memory moves a step's time by some percent, so several
// trainers of each kind are made and measured; the median of their ratios counts.
void training(Targets& targets, Memory memory, const Contest& contest) {
  constexpr int kTrainers = 9;
  std::vector<PairedResult> results;
  for (int i = 0; i < kTrainers; ++i) {
    const auto ours = contest.make_ours();
    const auto other = contest.make_other();
    results.push_back(paired_ratio(
        {}, [&] { ours->steps(contest.steps); }, [&] { other->steps(contest.steps); }));
    report(contest.name, contest.other, contest.steps, results.back());
  }
  std::sort(results.begin(), results.end(),
            [](const PairedResult& a, const PairedResult& b) { return a.median < b.median; });
  const double median = results[kTrainers / 2].median;
  const std::string spread = fmt::format("median of {} trainers' ratios, {:.3f} to {:.3f}",
                                         kTrainers, results.front().median, results.back().median);
  if (memory == Memory::tuned) {
    targets.add(contest.name, median, contest.required, spread);
  } else {
    fmt::print("{}_defaults: {:.3f}, {}\n", contest.name, median, spread);
  }
}

void training(Targets& targets, Memory memory, const char* name, NetKind kind, int steps) {
  training(targets, memory,
           {.name = name,
            .other = "two unconnected threads",
            .required = 0.93,
            .make_ours = [kind] { return connected_trainer(kind); },
            .make_other = [kind] { return unconnected_trainer(kind); },
            .steps = steps});
}

int run(Memory memory) {
  if (memory == Memory::tuned) tune_process_memory();
  fmt::print("memory of the process: {}\n",
             memory == Memory::tuned ? "tune_process_memory()" : "as it comes");
  at::set_num_threads(1);
  Targets targets;
  overheads();
  empty_run_8_threads(targets, memory);
  parameter_check(targets, memory);
  training(targets, memory, "mlp_2_replicas_vs_unconnected", NetKind::mlp, 10);
  training(targets, memory, "cnn_2_replicas_vs_unconnected", NetKind::cnn, 5);
  training(targets, memory,
           {.name = "sync_batch_norm_vs_torch",
            .other = "torch's, two unconnected threads",
            .required = 0.6,
            .make_ours = synchronized_batch_norm,
            .make_other = unconnected_batch_norm,
            .steps = 50});
  return targets.finish();
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using lockstep::bench::Memory;
  lockstep::choose_blas_kernels(argv);
  const bool defaults = argc == 2 && std::string_view(argv[1]) == "--defaults";
  if (argc > 1 && !defaults) {
    std::fprintf(stderr, "usage: bench_strategy [--defaults]\n");
    return 2;
  }
  return lockstep::bench::run(defaults ? Memory::defaults : Memory::tuned);
}
