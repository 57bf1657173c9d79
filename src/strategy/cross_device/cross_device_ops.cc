#include "lockstep/cross_device_ops.h"

#include <fmt/format.h>

#include "strategy/core.h"
#include "tensor/reduce.h"

namespace lockstep {

namespace {

void check(const Destinations& destinations, const char* method) {
  if (destinations.devices().empty()) {
    throw InvalidUsage(fmt::format("{}: destinations can not be empty", method));
  }
}

void check_context(const char* method) {
  const auto& modes = detail::thread_context().modes;
  if (!modes.empty() && modes.back().replica != nullptr) {
    throw InvalidUsage(
        fmt::format("CrossDeviceOps::{} was called inside a step function; use "
                    "get_replica_context().merge_call() to get to cross-replica context",
                    method),
        Code::failed_precondition);
  }
}

tensor::Combine combine_of(ReduceOp op) {
  return op == ReduceOp::mean ? tensor::Combine::mean : tensor::Combine::sum;
}

bool any_sparse(const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors) {
    if (tensor.is_sparse()) return true;
  }
  return false;
}

}  // namespace

Destinations::Destinations(const char* device)
    : devices_{Device::canonicalize(device, detail::thread_context().device)} {}

Destinations::Destinations(const Tensor& tensor)
    : devices_{tensor.is_cuda() ? Device(fmt::format("GPU:{}", tensor.get_device()))
                                : Device(detail::thread_context().device)} {}

Mirrored<Tensor> CrossDeviceOps::reduce(ReduceOp op, const PerReplica<Tensor>& value,
                                        const Destinations& destinations) {
  const ReducePair pair{value, destinations};
  return batch_reduce(op, std::span(&pair, 1)).front();
}

std::vector<Mirrored<Tensor>> CrossDeviceOps::batch_reduce(ReduceOp op,
                                                           std::span<const ReducePair> pairs) {
  check_context("reduce");
  for (const ReducePair& pair : pairs) check(pair.destinations, "reduce");
  if (pairs.empty()) return {};
  return do_batch_reduce(op, pairs);
}

Mirrored<Tensor> CrossDeviceOps::broadcast(const Tensor& tensor, const Destinations& destinations) {
  check_context("broadcast");
  check(destinations, "broadcast");
  return do_broadcast(tensor, destinations.devices());
}

Mirrored<Tensor> CrossDeviceOps::do_broadcast(const Tensor& tensor,
                                              const DeviceList& destinations) {
  const DeviceTable& table = detail::current_core().options().device_table;
  std::vector<Tensor> copies;
  for (const Device& device : destinations) {
    copies.push_back(tensor.detach().to(table.torch_device(device), /*non_blocking=*/false,
                                        /*copy=*/true));
  }
  return {std::move(copies), destinations};
}

ReductionToOneDevice::ReductionToOneDevice(std::optional<Device> reduce_to_device,
                                           Accumulate accumulate)
    : reduce_to_device_(std::move(reduce_to_device)), accumulate_(std::move(accumulate)) {}

std::vector<Mirrored<Tensor>> ReductionToOneDevice::do_batch_reduce(
    ReduceOp op, std::span<const ReducePair> pairs) {
  detail::StrategyCore& core = detail::current_core();
  // Dense values of CPUs are combined all at once, in one pass that writes every destination; all
  // lanes take a part of the bytes. What else there is goes one by one.
  std::vector<std::optional<Mirrored<Tensor>>> results(pairs.size());
  std::vector<tensor::ReduceJob> jobs;
  std::vector<std::size_t> job_of;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    std::vector<Tensor> each = local_results(pairs[i].value);
    const DeviceList& devices = pairs[i].destinations.devices();
    if (any_sparse(each)) {
      results[i] = do_broadcast(tensor::reduce_sparse(combine_of(op), each), devices);
    } else if (accumulate_) {
      Tensor total = accumulate_(each);
      if (op == ReduceOp::mean) total = total / static_cast<std::int64_t>(each.size());
      results[i] = do_broadcast(total, devices);
    } else {
      jobs.push_back(tensor::make_job(combine_of(op), std::move(each),
                                      static_cast<int>(devices.size()), core.result_memory()));
      job_of.push_back(i);
    }
  }
  if (!jobs.empty()) {
    const tensor::BatchReduce batch(jobs);
    const int pieces = batch.pieces(core.replicas());
    if (pieces == 1) {
      batch.run();
    } else {
      core.on_lanes([&](int lane) {
        if (lane < pieces) batch.run_piece(lane, pieces);
      });
    }
    for (std::size_t k = 0; k < jobs.size(); ++k) {
      const std::size_t i = job_of[k];
      results[i].emplace(std::move(jobs[k].outputs), pairs[i].destinations.devices());
    }
  }
  std::vector<Mirrored<Tensor>> ordered;
  for (auto& result : results) ordered.push_back(std::move(*result));
  return ordered;
}

}  // namespace lockstep
