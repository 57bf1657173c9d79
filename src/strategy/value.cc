// Reading and printing distributed values.
#include "lockstep/value.h"

#include <fmt/format.h>

#include <sstream>

#include "lockstep/detail/select.h"
#include "lockstep/nest.h"
#include "lockstep/reduce_op.h"
#include "strategy/core.h"
#include "strategy/words.h"

namespace lockstep {

namespace {

std::string names(const DeviceList& devices) {
  std::string text;
  for (const Device& device : devices) text += (text.empty() ? "" : ", ") + device.str();
  return text;
}

}  // namespace

ReduceOp::ReduceOp(Value value) : value_(value) {
  if (value > min) {
    throw InvalidUsage(fmt::format("a ReduceOp is sum, mean, max or min, not the value {}",
                                   static_cast<int>(value)));
  }
}

ReduceOp::ReduceOp(std::string_view word)
    : value_(static_cast<Value>(detail::index_of_word(
          word, std::array<std::string_view, 4>{"sum", "mean", "max", "min"}, "reduce_op"))) {}

std::string_view ReduceOp::name() const noexcept {
  constexpr std::string_view names[] = {"SUM", "MEAN", "MAX", "MIN"};
  return names[value_];
}

namespace detail {

bool is_sole_owner(const Tensor& tensor, std::size_t holders) {
  return tensor.use_count() <= holders && tensor.has_storage() && tensor.storage().use_count() == 1;
}

int readable_component(const DeviceList& devices) {
  const ThreadContext& context = thread_context();
  const auto on = [&](const Device& device) {
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (devices[i] == device) return static_cast<int>(i);
    }
    return 0;
  };
  const ReplicaContext* replica = context.modes.empty() ? nullptr : context.modes.back().replica;
  if (replica != nullptr) return on(replica->device());
  if (context.updating) return on(context.updating->device);
  return context.device.empty() ? 0 : on(Device(context.device));
}

void no_such_component(const char* locality, int index, int size) {
  throw InvalidUsage(
      fmt::format("a {} value with {} components has no component {}", locality, size, index));
}

void no_component_on(const char* locality, const Device& device, const DeviceList& devices) {
  throw InvalidUsage(fmt::format("Device {} not found in a {} value on {}", device.str(), locality,
                                 names(devices)));
}

void not_on_device(const char* locality, const Device& device, const DeviceList& devices) {
  throw InvalidUsage(fmt::format(
      "update: a {} argument has no component on {}, where the variable has a copy; it lives on {}",
      locality, device.str(), names(devices)));
}

void not_single(const char* locality, int size) {
  throw InvalidUsage(fmt::format(
      "single() of a {} value with {} components: take one with [replica], or local_results()",
      locality, size));
}

void check_component_count(const char* locality, std::size_t values, std::size_t devices) {
  if (values == devices && values > 0) return;
  throw InvalidUsage(values == 0 ? fmt::format("a {} value must be non-empty", locality)
                                 : fmt::format("a {} value of {} components on {} devices",
                                               locality, values, devices));
}

void nests_differ(const std::string& what, int replica) {
  throw InvalidUsage(fmt::format("the replicas' values have different structure: replica {} has {}",
                                 replica, what));
}

void print(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) {
    out << "undefined";
  } else if (tensor.numel() == 1) {
    out << tensor.item();
  } else if (tensor.numel() <= 16 && tensor.dim() == 1) {
    out << "[";
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      out << (i == 0 ? "" : ", ") << tensor[i].item();
    }
    out << "]";
  } else {
    out << c10::toString(tensor.scalar_type()) << tensor.sizes();
  }
}

}  // namespace detail
}  // namespace lockstep
