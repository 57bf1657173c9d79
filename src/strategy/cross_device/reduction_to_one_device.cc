#include "lockstep/reduction_to_one_device.h"

#include <fmt/format.h>

#include "lockstep/error.h"
#include "lockstep/strategy.h"
#include "strategy/core.h"
#include "strategy/cross_device/reduce_on_lanes.h"

namespace lockstep {

namespace {

/// A single component that is where it should go, and of the result's dtype.
bool is_its_own_result(ReduceOp op, const ReducePair& pair) {
  const Tensor& first = pair.value.components().front();
  return pair.value.components().size() == 1 &&
         pair.value.devices() == pair.destinations.devices() &&
         (op.picks() ? !first.is_complex() && !first.is_sparse()
                     : first.is_floating_point() || first.is_complex() ||
                           (op == ReduceOp::sum && first.scalar_type() != at::kBool));
}

}  // namespace

ReductionToOneDevice::ReductionToOneDevice(std::optional<Device> reduce_to_device,
                                           Accumulate accumulation_fn)
    : reduce_to_device_(std::move(reduce_to_device)),
      accumulation_fn_(std::move(accumulation_fn)) {}

Tensor ReductionToOneDevice::accumulate(ReduceOp op, const ReducePair& pair) const {
  if (op.picks()) {
    throw InvalidUsage(fmt::format(
        "reduce {}: the accumulation_fn of ReductionToOneDevice adds up; give one without it",
        op.name()));
  }
  const DeviceTable& table = detail::current_core().options().device_table;
  const at::Device there =
      table.torch_device(reduce_to_device_.value_or(pair.destinations.devices().front()));
  std::vector<Tensor> moved;
  for (const Tensor& component : pair.value.components()) {
    moved.push_back(component.detach().to(there));
  }
  const Tensor total = accumulation_fn_(moved);
  if (!total.defined()) throw InvalidUsage("accumulation_fn returned an undefined tensor");
  return op == ReduceOp::mean ? tensor::mean_of_sum(total, static_cast<std::int64_t>(moved.size()))
                              : total;
}

std::vector<Mirrored<Tensor>> ReductionToOneDevice::do_batch_reduce(
    ReduceOp op, std::span<const ReducePair> pairs, const CommunicationOptions&) {
  detail::StrategyCore& core = detail::current_core();
  if (reduce_to_device_) core.options().device_table.check({*reduce_to_device_});
  const tensor::Combine combine = detail::combine_of(op);
  // Dense values of CPUs are combined all at once, in one pass that writes every destination; all
  // lanes take a part of the bytes. What else there is goes one by one.
  std::vector<std::optional<Mirrored<Tensor>>> results(pairs.size());
  std::vector<tensor::ReduceJob> jobs;
  std::vector<std::size_t> job_of;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::vector<Tensor>& each = pairs[i].value.components();
    const DeviceList& devices = pairs[i].destinations.devices();
    if (is_its_own_result(op, pairs[i])) {
      results[i].emplace(std::vector{each.front().detach()}, devices);
    } else if (tensor::any_sparse(each)) {
      results[i] = do_broadcast(tensor::reduce_sparse(combine, each), devices);
    } else if (accumulation_fn_) {
      results[i] = do_broadcast(accumulate(op, pairs[i]), devices);
    } else {
      jobs.push_back(
          tensor::make_job(combine, each, static_cast<int>(devices.size()), core.result_memory()));
      job_of.push_back(i);
    }
  }
  detail::reduce_on_lanes(core, jobs);
  for (std::size_t k = 0; k < jobs.size(); ++k) {
    results[job_of[k]].emplace(std::move(jobs[k].outputs), pairs[job_of[k]].destinations.devices());
  }
  return detail::taken(results);
}

}  // namespace lockstep
