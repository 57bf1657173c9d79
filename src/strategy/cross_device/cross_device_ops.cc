#include "lockstep/cross_device_ops.h"

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>

#include "strategy/core.h"
#include "tensor/torch_text.h"

namespace lockstep {

namespace {

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

const DeviceTable& device_table() { return detail::current_core().options().device_table; }

void check_destinations(const Destinations& destinations, const char* method) {
  if (destinations.devices().empty()) {
    throw InvalidUsage(fmt::format("{}: destinations can not be empty", method));
  }
  const DeviceList& devices = destinations.devices();
  device_table().check(devices);
  for (auto device = devices.begin(); device != devices.end(); ++device) {
    if (std::find(devices.begin(), device, *device) != device) {
      throw InvalidUsage(
          fmt::format("{}: {} is twice among the destinations", method, device->str()));
    }
  }
}

/// Every component is there, and where its value says.
void check_value(const ReduceValue& value, const char* method) {
  const DeviceTable& table = device_table();
  for (std::size_t i = 0; i < value.components().size(); ++i) {
    const Tensor& component = value.components()[i];
    const Device& device = value.devices()[i];
    if (!component.defined()) {
      throw InvalidUsage(fmt::format("{}: component {} is an undefined tensor", method, i));
    }
    const at::Device wanted = table.torch_device(device);
    if (component.device() != wanted) {
      throw InvalidUsage(fmt::format(
          "{}: component {} is said to be on {} ({}), but is on {}; move it there with .to(), or "
          "say where it is",
          method, i, device.str(), wanted.str(), component.device().str()));
    }
  }
}

std::int64_t checked_axis(const std::vector<Tensor>& components, std::int64_t axis) {
  const Tensor& first = components.front();
  const std::int64_t along = axis < 0 ? axis + first.dim() : axis;
  if (along < 0 || along >= first.dim()) {
    throw InvalidUsage(fmt::format("gather along axis {} of a tensor of shape {}", axis,
                                   tensor::shape_text(first)));
  }
  for (std::size_t i = 0; i < components.size(); ++i) {
    const Tensor& other = components[i];
    if (other.is_sparse()) {
      throw Unsupported(fmt::format("gather of a sparse tensor (replica {})", i));
    }
    std::vector<std::int64_t> wanted = first.sizes().vec();
    std::vector<std::int64_t> found = other.sizes().vec();
    if (wanted.size() == found.size()) {
      wanted[static_cast<std::size_t>(along)] = found[static_cast<std::size_t>(along)] = 0;
    }
    if (wanted != found || other.scalar_type() != first.scalar_type()) {
      throw InvalidUsage(fmt::format(
          "gather along axis {}: replica 0 has shape {} of {}, replica {} has {} of {}; only the "
          "length of that axis may differ",
          axis, tensor::shape_text(first), c10::toString(first.scalar_type()), i,
          tensor::shape_text(other), c10::toString(other.scalar_type())));
    }
  }
  return along;
}

DeviceList home_of(const Tensor& tensor) {
  if (tensor.defined() && tensor.is_cuda()) {
    return {Device(fmt::format("GPU:{}", tensor.get_device()))};
  }
  return {Device(detail::thread_context().device)};
}

}  // namespace

Destinations::Destinations(const char* device)
    : devices_{Device::canonicalize(device, detail::thread_context().device)} {}

Destinations::Destinations(const Tensor& tensor) : devices_(home_of(tensor)) {}

ReduceValue::ReduceValue(const Variable& variable)
    : devices_(std::make_shared<const DeviceList>(variable.devices())) {
  for (const Component& component : variable.components()) components_.push_back(component);
}

ReduceValue::ReduceValue(const Tensor& tensor)
    : components_{tensor},
      devices_(std::make_shared<const DeviceList>(home_of(tensor))),
      plain_(true) {}

Mirrored<Tensor> CrossDeviceOps::reduce(ReduceOp op, const ReduceValue& value,
                                        const Destinations& destinations,
                                        const CommunicationOptions& options) {
  const ReducePair pair{value, destinations};
  return batch_reduce(op, std::span(&pair, 1), options).front();
}

std::vector<Mirrored<Tensor>> CrossDeviceOps::batch_reduce(ReduceOp op,
                                                           std::span<const ReducePair> pairs,
                                                           const CommunicationOptions& options) {
  check_context("reduce");
  for (const ReducePair& pair : pairs) {
    check_destinations(pair.destinations, "reduce");
    check_value(pair.value, "reduce");
  }
  if (pairs.empty()) return {};
  const c10::AutoGradMode not_recorded(false);
  return do_batch_reduce(op, pairs, options);
}

Mirrored<Tensor> CrossDeviceOps::broadcast(const Tensor& tensor, const Destinations& destinations) {
  check_context("broadcast");
  check_destinations(destinations, "broadcast");
  if (!tensor.defined()) throw InvalidUsage("broadcast of an undefined tensor");
  return do_broadcast(tensor, destinations.devices());
}

Mirrored<Tensor> CrossDeviceOps::all_gather(const ReduceValue& value,
                                            const Destinations& destinations, std::int64_t axis,
                                            const CommunicationOptions& options) {
  check_context("all_gather");
  check_destinations(destinations, "all_gather");
  check_value(value, "all_gather");
  const std::int64_t along = checked_axis(value.components(), axis);
  const c10::AutoGradMode not_recorded(false);
  const Tensor all = do_all_gather(value.components(), along, options);
  // A single destination takes the result itself.
  if (destinations.devices().size() == 1) return {{all}, destinations.devices()};
  return do_broadcast(all, destinations.devices());
}

Mirrored<Tensor> CrossDeviceOps::do_broadcast(const Tensor& tensor,
                                              const DeviceList& destinations) {
  const DeviceTable& table = device_table();
  std::vector<Tensor> copies;
  copies.reserve(destinations.size());
  for (const Device& device : destinations) {
    copies.push_back(tensor.detach().to(table.torch_device(device), /*non_blocking=*/false,
                                        /*copy=*/true));
  }
  return {std::move(copies), destinations};
}

Tensor CrossDeviceOps::do_all_gather(const std::vector<Tensor>& components, std::int64_t axis,
                                     const CommunicationOptions&) {
  return at::cat(components, axis);
}

}  // namespace lockstep
