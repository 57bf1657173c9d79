#include "lockstep/all_reduce_cross_device_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/log.h"
#include "lockstep/strategy.h"
#include "strategy/core.h"
#include "strategy/cross_device/hierarchical_copy.h"
#include "strategy/cross_device/packing.h"
#include "strategy/cross_device/reduce_on_lanes.h"
#include "strategy/words.h"

namespace lockstep {

namespace {

constexpr std::array<std::string_view, 2> kAlgorithms = {"nccl", "hierarchical_copy"};

void check_not_negative(std::int64_t number, const char* name) {
  if (number < 0) {
    throw InvalidUsage(
        fmt::format("AllReduceCrossDeviceOps: {} must be 0 or more, not {}", name, number));
  }
}

/// A value that goes back to the devices it comes from, in whatever order.
bool stays_on_its_devices(const ReducePair& pair) {
  const DeviceList& from = pair.value.devices();
  const DeviceList& to = pair.destinations.devices();
  return std::is_permutation(from.begin(), from.end(), to.begin(), to.end());
}

std::vector<detail::Pack> packs_of(const std::vector<tensor::ReduceJob>& jobs,
                                   const AllReduceOptions& options) {
  std::vector<detail::PackItem> items;
  items.reserve(jobs.size());
  for (const tensor::ReduceJob& job : jobs) {
    items.push_back({job.inputs.front().scalar_type(), job.inputs.front().numel()});
  }
  if (options.num_packs > 0) return detail::split_evenly(items, options.num_packs);
  if (options.agg_small_grads_max_bytes > 0 && options.agg_small_grads_max_group > 0) {
    return detail::group_small(items, options.agg_small_grads_max_bytes,
                               options.agg_small_grads_max_group);
  }
  return detail::one_each(items);
}

/// The result on the destinations' devices, given that on the value's.
Mirrored<Tensor> in_order_of(const DeviceList& destinations, const DeviceList& devices,
                             const std::vector<Tensor>& results) {
  std::vector<Tensor> ordered;
  for (const Device& device : destinations) {
    const auto at = std::find(devices.begin(), devices.end(), device) - devices.begin();
    ordered.push_back(results[static_cast<std::size_t>(at)]);
  }
  return {std::move(ordered), destinations};
}

}  // namespace

AllReduceAlgorithm::AllReduceAlgorithm(std::string_view word)
    : value_(static_cast<Value>(detail::index_of_word(word, kAlgorithms, "all_reduce_alg"))) {}

AllReduceCrossDeviceOps::AllReduceCrossDeviceOps(AllReduceOptions options) : options_(options) {
  check_not_negative(options.num_packs, "num_packs");
  check_not_negative(options.agg_small_grads_max_bytes, "agg_small_grads_max_bytes");
  check_not_negative(options.agg_small_grads_max_group, "agg_small_grads_max_group");
}

NcclAllReduce::NcclAllReduce(int num_packs)
    : AllReduceCrossDeviceOps(
          {.all_reduce_alg = AllReduceAlgorithm::nccl, .num_packs = num_packs}) {}

HierarchicalCopyAllReduce::HierarchicalCopyAllReduce(int num_packs)
    : AllReduceCrossDeviceOps(
          {.all_reduce_alg = AllReduceAlgorithm::hierarchical_copy, .num_packs = num_packs}) {}

std::vector<Mirrored<Tensor>> AllReduceCrossDeviceOps::do_batch_reduce(
    ReduceOp op, std::span<const ReducePair> pairs, const CommunicationOptions& options) {
  if (options_.all_reduce_alg == AllReduceAlgorithm::nccl) {
    if (!explained_fallback_.exchange(true)) {
      log_warning(
          "all_reduce_alg nccl: this build has no NCCL; values are reduced on the host, as "
          "ReductionToOneDevice does");
    }
    return one_device_.batch_reduce(op, pairs, options);
  }

  // Values of the same devices share packs; the others go one device's way, all at once.
  detail::StrategyCore& core = detail::current_core();
  std::vector<std::optional<Mirrored<Tensor>>> results(pairs.size());
  std::vector<ReducePair> others;
  std::vector<std::size_t> other_of;
  struct Series {
    const DeviceList* devices;
    std::vector<tensor::ReduceJob> jobs;
    std::vector<std::size_t> pair_of;
  };
  std::vector<Series> all;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const bool sparse = tensor::any_sparse(pairs[i].value.components());
    if (sparse && !explained_sparse_.exchange(true)) {
      log_warning("sparse values are not all-reduced: they are put together on one device");
    }
    if (sparse || !stays_on_its_devices(pairs[i])) {
      others.push_back(pairs[i]);
      other_of.push_back(i);
      continue;
    }
    const DeviceList& devices = pairs[i].value.devices();
    auto series = std::find_if(all.begin(), all.end(),
                               [&](const Series& one) { return *one.devices == devices; });
    if (series == all.end()) series = all.insert(all.end(), Series{&devices, {}, {}});
    series->jobs.push_back(tensor::make_job(detail::combine_of(op), pairs[i].value.components(),
                                            static_cast<int>(devices.size()),
                                            core.result_memory()));
    series->pair_of.push_back(i);
  }
  for (const Series& series : all) {
    detail::hierarchical_copy(core, series.jobs, packs_of(series.jobs, options_));
    for (std::size_t k = 0; k < series.jobs.size(); ++k) {
      const ReducePair& pair = pairs[series.pair_of[k]];
      results[series.pair_of[k]] =
          in_order_of(pair.destinations.devices(), *series.devices, series.jobs[k].outputs);
    }
  }
  const auto reduced = one_device_.batch_reduce(op, others, options);
  for (std::size_t k = 0; k < reduced.size(); ++k) results[other_of[k]] = reduced[k];

  return detail::taken(results);
}

}  // namespace lockstep
