// How fast gradients of real nets are all-reduced on 2, 4 and 8 devices of this machine: every
// cross-device op, libtorch's own ways, and what memory allows. Exits 1 if a target is short.
// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/cross_device/gradient_sets.h"
#include "bench/kernel/streaming.h"
#include "bench/support/paired.h"
#include "lockstep/lockstep.h"

namespace lockstep::bench {
namespace {

constexpr int kThreads = 2;

/// One replica's gradients are one block of memory, as a backward pass that allocates them in a row
/// leaves them; what is compared with has the same.
class Gradients {
 public:
  Gradients(const GradientSet& set, int devices) : devices_(devices) {
    for (int d = 0; d < devices; ++d) device_list_.emplace_back(fmt::format("CPU:{}", d));
    const auto shared = std::make_shared<const DeviceList>(device_list_);
    std::vector<std::vector<Tensor>> each(static_cast<std::size_t>(devices));
    for (auto& own : each) {
      for (const auto& shape : set.shapes) own.push_back(at::randn(shape));
    }
    for (std::size_t k = 0; k < set.shapes.size(); ++k) {
      std::vector<Tensor> components;
      components.reserve(each.size());
      for (const auto& own : each) components.push_back(own[k]);
      values_.emplace_back(std::move(components), shared);
      pairs_.push_back({values_.back(), values_.back()});
    }
  }

  [[nodiscard]] int devices() const noexcept { return devices_; }
  [[nodiscard]] const DeviceList& device_list() const noexcept { return device_list_; }
  [[nodiscard]] const std::vector<PerReplica<Tensor>>& values() const noexcept { return values_; }
  [[nodiscard]] std::span<const ReducePair> pairs() const noexcept { return pairs_; }

 private:
  int devices_;
  DeviceList device_list_;
  std::vector<PerReplica<Tensor>> values_;
  std::vector<ReducePair> pairs_;
};

/// As many bytes, in one piece for each device, and bare loops on bare threads.
class Bound {
 public:
  Bound(std::int64_t elements, int devices) : devices_(devices) {
    constexpr std::int64_t kStep = 64 * kThreads;  // whole steps of the loop for each thread
    count_ = elements / kStep * kStep;
    for (int d = 0; d < devices; ++d) {
      memory_.push_back(at::randn({count_}));
      results_.push_back(at::empty({count_}));
    }
  }

  void run(Stores stores) const {
    const std::int64_t share = count_ / kThreads;
    const auto part = [&](int thread) {
      std::vector<const float*> from;
      std::vector<float*> to;
      for (int d = 0; d < devices_; ++d) {
        from.push_back(memory_[static_cast<std::size_t>(d)].data_ptr<float>() + thread * share);
        to.push_back(results_[static_cast<std::size_t>(d)].data_ptr<float>() + thread * share);
      }
      stream_all_reduce(stores, from.data(), to.data(), devices_, static_cast<std::size_t>(share));
    };
    std::jthread other([&] { part(1); });
    part(0);
  }
  /// With the kind of store that is faster here.
  void run() { run(best()); }

 private:
  Stores best() {
    if (!best_) {
      const auto time = [&](Stores stores) {
        run(stores);
        return seconds(Timer::wall, [&] {
          for (int i = 0; i < 3; ++i) run(stores);
        });
      };
      best_ = time(Stores::cached) < time(Stores::around_the_cache) ? Stores::cached
                                                                    : Stores::around_the_cache;
    }
    return *best_;
  }

  int devices_;
  std::int64_t count_;
  std::vector<Tensor> memory_;
  std::vector<Tensor> results_;
  std::optional<Stores> best_;
};

/// What a careful program without lockstep writes: add up on the first device, copy to all, into
/// memory it made once.
class ChainedAdd {
 public:
  explicit ChainedAdd(const Gradients& gradients) {
    for (const auto& value : gradients.values()) {
      std::vector<Tensor> own;
      for (int d = 0; d < value.size(); ++d) own.push_back(at::zeros_like(value[d]));
      results_.push_back(std::move(own));
    }
  }
  void operator()(const Gradients& gradients) {
    for (std::size_t k = 0; k < results_.size(); ++k) {
      const auto& value = gradients.values()[k];
      Tensor& total = results_[k][0];
      at::add_out(total, value[0], value[1]);
      for (int d = 2; d < value.size(); ++d) total.add_(value[d]);
      for (int d = 1; d < value.size(); ++d) results_[k][static_cast<std::size_t>(d)].copy_(total);
    }
  }

 private:
  std::vector<std::vector<Tensor>> results_;
};

/// The same over the gradients themselves, which are lost: less memory to write than any op that
/// leaves them alone.
void chained_add_in_place(const Gradients& gradients) {
  for (const auto& value : gradients.values()) {
    Tensor total = value[0];
    for (int d = 1; d < value.size(); ++d) total.add_(value[d]);
    for (int d = 1; d < value.size(); ++d) Tensor(value[d]).copy_(total);
  }
}

/// What the short way costs: a copy of everything, and new memory for each result.
void stack_sum(const Gradients& gradients) {
  std::vector<Tensor> results;
  for (const auto& value : gradients.values()) {
    Tensor total = at::stack(local_results(value)).sum(0);
    for (int d = 1; d < value.size(); ++d) results.push_back(total.clone());
    results.push_back(std::move(total));
  }
}

struct NamedOps {
  std::string name;
  std::shared_ptr<CrossDeviceOps> ops;
};

std::vector<NamedOps> all_ops(int devices) {
  using All = AllReduceCrossDeviceOps;
  const auto small = [](AllReduceAlgorithm algorithm) {
    return std::make_shared<All>(AllReduceOptions{.all_reduce_alg = algorithm,
                                                  .num_packs = 0,
                                                  .agg_small_grads_max_bytes = 64 << 10,
                                                  .agg_small_grads_max_group = 10});
  };
  return {{"ReductionToOneDevice", std::make_shared<ReductionToOneDevice>()},
          {"nccl (fallback), 1 pack", std::make_shared<NcclAllReduce>(1)},
          {"nccl (fallback), small grouped", small("nccl")},
          {"hierarchical_copy, 1 pack", std::make_shared<HierarchicalCopyAllReduce>(1)},
          {fmt::format("hierarchical_copy, {} packs", devices),
           std::make_shared<HierarchicalCopyAllReduce>(devices)},
          {"hierarchical_copy, small grouped", small("hierarchical_copy")},
          {"hierarchical_copy, no packs", std::make_shared<HierarchicalCopyAllReduce>(0)}};
}

void line(const std::string& name, const PairedResult& result, double bytes) {
  fmt::print("  {:<34} {:8.1f} ms  {:6.1f} GB/s  {:.2f} of the bound [{:.2f} .. {:.2f}]\n", name,
             result.ours_seconds * 1e3, bytes / result.ours_seconds / 1e9, result.median,
             result.lower_quartile, result.upper_quartile);
  std::fflush(stdout);
}

/// Everything beside the bound; few pairs, to look at.
void table(const GradientSet& set, int devices) {
  const Gradients gradients(set, devices);
  Bound bound(set.elements(), devices);
  const double bytes = 2.0 * devices * 4.0 * static_cast<double>(set.elements());
  fmt::print(
      "{}: {} tensors, {:.1f} M parameters, {} devices; each byte in and out once: {:.0f} MB\n",
      set.name, set.shapes.size(), static_cast<double>(set.elements()) / 1e6, devices, bytes / 1e6);
  const PairOptions few{.pairs = 5, .attempts = 15};
  MirroredStrategy strategy({.devices = gradients.device_list()});
  const auto scope = strategy.scope();
  for (const auto& [name, ops] : all_ops(devices)) {
    line(name,
         paired_ratio(
             few, [&, &reduce = *ops] { reduce.batch_reduce(ReduceOp::sum, gradients.pairs()); },
             [&] { bound.run(); }),
         bytes);
  }
  ChainedAdd chained_add(gradients);
  line("libtorch: add_out, add_, copy_",
       paired_ratio(
           few, [&] { chained_add(gradients); }, [&] { bound.run(); }),
       bytes);
  line("libtorch: stack().sum(), clone",
       paired_ratio(
           few, [&] { stack_sum(gradients); }, [&] { bound.run(); }),
       bytes);
  line("libtorch: add_, copy_ in place",
       paired_ratio(
           few, [&] { chained_add_in_place(gradients); }, [&] { bound.run(); }),
       bytes);
}

void compare(Targets& targets, const char* name, double required, const Gradients& gradients,
             const std::function<void(const Gradients&)>& other) {
  MirroredStrategy strategy({.devices = gradients.device_list()});
  const auto scope = strategy.scope();
  ReductionToOneDevice ops;
  // Several in a row: what an allocation costs depends on the one before.
  constexpr int kCalls = 8;
  const auto repeat = [](const std::function<void()>& call) {
    return [call] {
      for (int i = 0; i < kCalls; ++i) call();
    };
  };
  targets.add(name,
              paired_ratio({}, repeat([&] { ops.batch_reduce(ReduceOp::sum, gradients.pairs()); }),
                           repeat([&] { other(gradients); })),
              required);
}

int run() {
  at::set_num_threads(kThreads);
  set_log_level(LogLevel::error);
  Targets targets;
  Bound bound(resnet50().elements(), 2);
  {
    const Gradients four(resnet50(), 4);
    compare(targets, "resnet50_4dev_vs_stack_sum", 8, four, stack_sum);
    compare(targets, "resnet50_4dev_vs_chained_add", 2.2, four, ChainedAdd(four));
  }
  const Gradients two(resnet50(), 2);
  compare(targets, "resnet50_2dev_vs_bound", 0.80, two, [&](const Gradients&) { bound.run(); });
  fmt::print("With freed memory kept by the process (tune_process_memory()):\n");
  tune_process_memory();
  for (const GradientSet& set : {resnet50(), bert_base()}) {
    for (const int devices : {2, 4, 8}) table(set, devices);
  }
  return targets.finish();
}

}  // namespace
}  // namespace lockstep::bench

int main() { return lockstep::bench::run(); }
