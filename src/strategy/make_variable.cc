// Making variables: what is asked for, checked, and the copies.
// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <array>

#include "strategy/run.h"
#include "strategy/variable_state.h"
#include "strategy/words.h"

namespace lockstep {

namespace {

constexpr std::array<std::string_view, 4> kSynchronizations = {"auto", "none", "on_write",
                                                               "on_read"};
constexpr std::array<std::string_view, 4> kAggregations = {"none", "sum", "mean",
                                                           "only_first_replica"};

/// "dense_1" without "_1".
std::string_view without_number(std::string_view part) {
  const std::size_t last = part.find_last_not_of("0123456789");
  if (last == std::string_view::npos || last + 1 == part.size() || part[last] != '_') return part;
  return part.substr(0, last);
}

}  // namespace

Synchronization parse_synchronization(std::string_view word) {
  return static_cast<Synchronization>(
      detail::index_of_word(word, kSynchronizations, "variable synchronization mode"));
}
Aggregation parse_aggregation(std::string_view word) {
  return static_cast<Aggregation>(
      detail::index_of_word(word, kAggregations, "variable aggregation mode"));
}
std::string_view to_string(Synchronization value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < kSynchronizations.size() ? kSynchronizations[index] : "invalid";
}
std::string_view to_string(Aggregation value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < kAggregations.size() ? kAggregations[index] : "invalid";
}

std::string canonical_variable_name(std::string_view name) {
  if (name.empty()) return "Variable";
  std::string canonical;
  for (;;) {
    const std::size_t slash = name.find('/');
    canonical += without_number(name.substr(0, slash));
    if (slash == std::string_view::npos) return canonical;
    canonical += '/';
    name.remove_prefix(slash + 1);
  }
}

namespace detail {

namespace {

void check_modes(const VariableRequest& request, bool distributed) {
  if (to_string(request.options.synchronization) == "invalid") {
    throw InvalidUsage(fmt::format("Invalid variable synchronization mode: {} for variable {}",
                                   static_cast<int>(request.options.synchronization),
                                   request.name));
  }
  if (to_string(request.options.aggregation) == "invalid") {
    throw InvalidUsage(fmt::format("Invalid variable aggregation mode: {} for variable {}",
                                   static_cast<int>(request.options.aggregation), request.name));
  }
  if (distributed && request.options.synchronization == Synchronization::none) {
    throw InvalidUsage(
        fmt::format("variable {}: synchronization none is not possible under a "
                    "strategy; use automatic, on_write or on_read",
                    request.name));
  }
}

void check_dtype(const VariableRequest& request, const Tensor& initial, bool distributed) {
  const bool floating = initial.is_floating_point() || initial.is_complex();
  if (distributed && request.options.aggregation == Aggregation::mean && !floating) {
    throw InvalidUsage(fmt::format("variable {}: aggregation mean needs a floating dtype, not {}",
                                   request.name, c10::toString(initial.scalar_type())));
  }
  if (request.options.trainable && !floating) {
    throw InvalidUsage(fmt::format("variable {}: only floating variables are trainable, not {}",
                                   request.name, c10::toString(initial.scalar_type())));
  }
}

/// Where the copies go, by what scopes say and by the strategy's placement.
DeviceList variable_devices(const StrategyCore& core, bool on_read) {
  const ThreadContext& context = thread_context();
  if (!context.colocations.empty()) return context.colocations.back();
  switch (core.options().placement) {
    case Placement::plain:
      return {Device(context.device)};
    case Placement::central:
      // Each replica needs a copy to write without asking the others.
      return on_read ? core.options().worker_devices : core.options().parameter_devices;
    case Placement::mirrored:
      break;
  }
  return core.options().parameter_devices;
}

}  // namespace

Variable make_variable(const std::shared_ptr<StrategyCore>& core, VariableRequest request) {
  if (thread_context().tower_local) {
    request.options.synchronization = Synchronization::on_read;
    request.options.aggregation = *thread_context().tower_local;
    request.options.trainable = false;
  }
  check_modes(request, !core->is_default());
  const at::NoGradGuard not_recorded;
  Tensor initial = request.initial();
  if (!initial.defined()) {
    throw InvalidUsage(
        fmt::format("variable {}: its initial value is an undefined tensor", request.name));
  }
  check_dtype(request, initial, !core->is_default());
  // The other workers' own value gives shape and dtype only.
  if (Workers* workers = core->workers()) initial = workers->from_chief(initial, request.name);

  auto state = std::make_shared<VariableState>();
  state->name = std::move(request.name);
  state->core = core;
  state->synchronization = request.options.synchronization == Synchronization::on_read
                               ? Synchronization::on_read
                               : Synchronization::on_write;
  state->aggregation = request.options.aggregation;
  state->trainable = request.options.trainable;
  state->devices = variable_devices(*core, state->on_read());
  for (const Device& device : state->devices) {
    // A copy of the first one's value, also where that is random.
    const at::Device place = core->options().device_table.torch_device(device);
    Tensor copy = initial.detach().to(place, /*non_blocking=*/false, /*copy=*/true).contiguous();
    copy.requires_grad_(state->trainable);
    state->components.push_back(std::move(copy));
  }
  return Variable(std::move(state));
}

Tensor scalar_tensor(const at::Scalar& value) {
  return at::scalar_tensor(value, at::TensorOptions().dtype(value.type()));
}

}  // namespace detail

Variable variable(std::string name, const std::function<Tensor()>& initial,
                  const VariableOptions& options, Here here) {
  const detail::ThreadContext& context = detail::thread_context();
  const std::shared_ptr<detail::StrategyCore> core =
      detail::current_core().strategy().shared_core();
  VariableRequest request{context.variable_names + (name.empty() ? "Variable" : std::move(name)),
                          initial, options};
  ReplicaContext* const replica = get_replica_context();
  detail::Run* const run = replica != nullptr ? replica->state().run : nullptr;
  // The innermost creator is asked first, so the chain is built from its end.
  NextCreator next = [&](VariableRequest asked) {
    const std::string asked_name = asked.name;
    const detail::Verb verb("variable", here, asked_name);
    return detail::make_variable(core, std::move(asked));
  };
  const auto ask = [&](std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i) {
      next = [creator = context.creators[i], inner = std::move(next)](VariableRequest asked) {
        return creator(inner, std::move(asked));
      };
    }
  };
  const std::size_t callers = run != nullptr ? context.callers_creators : 0;
  ask(0, callers);
  if (run != nullptr) {
    next = [&, create = std::move(next)](VariableRequest asked) {
      const std::string asked_name = asked.name;
      return run->shared_variable(replica->state().index, asked_name,
                                  [&] { return create(std::move(asked)); });
    };
  }
  ask(callers, context.creators.size());
  return next(std::move(request));
}

Variable variable(std::string name, const Tensor& initial, const VariableOptions& options,
                  Here here) {
  return variable(
      std::move(name), [&] { return initial; }, options, here);
}

Variable variable(std::string name, const at::Scalar& initial, const VariableOptions& options,
                  Here here) {
  const auto tensor = [&] {
    // A number is what libtorch makes of one: floating numbers have the default dtype.
    const auto dtype = initial.isFloatingPoint() ? at::typeMetaToScalarType(at::get_default_dtype())
                                                 : initial.type();
    return at::scalar_tensor(initial, at::TensorOptions().dtype(dtype));
  };
  return variable(std::move(name), tensor, options, here);
}

}  // namespace lockstep
