// The verbs across replicas.
#include "lockstep/strategy.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "coll/work_state.h"
#include "strategy/cross_device/reduce_on_lanes.h"
#include "strategy/variable_state.h"
#include "tensor/reduce.h"
#include "tensor/torch_text.h"

namespace lockstep {

using detail::CrossEntry;
using detail::StrategyCore;

Strategy::Strategy(std::shared_ptr<StrategyCore> core) : core_(std::move(core)) {
  core_->set_strategy(this);
  if (core_->workers() != nullptr) core_->workers()->begin_strategy();
}

Strategy::~Strategy() {
  core_->set_strategy(nullptr);
  if (core_->workers() != nullptr) core_->workers()->end_strategy();
}

int Strategy::num_replicas_in_sync() const noexcept { return core_->replicas_in_sync(); }

const DeviceList& Strategy::worker_devices() const {
  if (core_->is_default()) {
    throw InvalidUsage(
        "worker_devices is unsupported by the default strategy: it runs wherever its "
        "caller does",
        Code::failed_precondition);
  }
  return core_->options().worker_devices;
}

const DeviceList& Strategy::parameter_devices() const {
  if (core_->is_default()) {
    throw InvalidUsage(
        "parameter_devices is unsupported by the default strategy: its variables "
        "live wherever they are created",
        Code::failed_precondition);
  }
  return core_->options().parameter_devices;
}

const std::string& Strategy::name() const noexcept { return core_->name(); }

bool Strategy::is_chief() const noexcept {
  return core_->workers() == nullptr || core_->workers()->is_chief();
}

std::vector<std::exception_ptr> Strategy::last_errors() const { return core_->last_errors(); }

std::ostream& operator<<(std::ostream& out, const Strategy& strategy) {
  out << strategy.name() << "(";
  const DeviceList& devices = strategy.core().options().worker_devices;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    out << (i == 0 ? "" : ", ") << devices[i].short_name();
  }
  return out << ")";
}

// --- reduce ----------------------------------------------------------------------------------

namespace {

/// Where a plain result goes: the current device, else the strategy's first.
Destinations plain_destination(const StrategyCore& core) {
  const std::string& device = detail::thread_context().device;
  return device.empty() ? Destinations(core.options().parameter_devices.front())
                        : Destinations(Device(device));
}

void check_components(const StrategyCore& core, int components, const char* method) {
  if (components == core.replicas()) return;
  throw InvalidUsage(fmt::format("{}: the value has {} components, {} has {} replicas", method,
                                 components, core.name(), core.replicas()));
}

std::int64_t wrapped_axis(std::int64_t axis, const Tensor& tensor, int replica) {
  const std::int64_t wrapped = axis < 0 ? axis + tensor.dim() : axis;
  if (wrapped < 0 || wrapped >= tensor.dim()) {
    throw InvalidUsage(fmt::format("reduce along axis {}: replica {}'s tensor has shape {}", axis,
                                   replica, tensor::shape_text(tensor)));
  }
  return wrapped;
}

/// What a maximum (minimum) of nothing is: every other value takes its place.
Tensor nothing_to_pick(ReduceOp op, const Tensor& like, at::IntArrayRef sizes) {
  const Tensor result = at::empty(sizes, like.options().requires_grad(false));
  const bool lowest = op == ReduceOp::max;
  if (like.scalar_type() == at::kBool) return result.fill_(!lowest);
  if (like.is_floating_point()) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return result.fill_(lowest ? -kInfinity : kInfinity);
  }
  AT_DISPATCH_INTEGRAL_TYPES(like.scalar_type(), "reduce", [&] {
    using Limits = std::numeric_limits<scalar_t>;
    result.fill_(static_cast<std::int64_t>(lowest ? Limits::lowest() : Limits::max()));
  });
  return result;
}

/// One replica's part of a reduction along axes. Sums of integers stay integers of the same dtype,
/// as TensorFlow's do.
Tensor part_along(ReduceOp op, const Tensor& own, const std::vector<std::int64_t>& axes) {
  if (!op.picks()) return own.sum(axes, /*keepdim=*/false, own.scalar_type());
  if (own.is_complex()) throw InvalidUsage("complex numbers have no maximum or minimum");
  if (own.numel() > 0) {
    return op == ReduceOp::max ? own.amax(axes, /*keepdim=*/false)
                               : own.amin(axes, /*keepdim=*/false);
  }
  std::vector<std::int64_t> sizes;
  for (std::int64_t axis = 0; axis < own.dim(); ++axis) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) sizes.push_back(own.size(axis));
  }
  return nothing_to_pick(op, own, sizes);
}

/// That of each replica, on its lane.
std::vector<Tensor> parts_along(StrategyCore& core, ReduceOp op, const PerReplica<Tensor>& value,
                                std::span<const std::int64_t> axes) {
  std::vector<Tensor> parts(static_cast<std::size_t>(value.size()));
  core.on_lanes([&](int lane) {
    const at::NoGradGuard not_recorded;
    const Tensor& own = value[lane];
    std::vector<std::int64_t> wrapped;
    for (const std::int64_t axis : axes) wrapped.push_back(wrapped_axis(axis, own, lane));
    parts[static_cast<std::size_t>(lane)] = part_along(op, own, wrapped);
  });
  return parts;
}

}  // namespace

PerReplica<Tensor> Strategy::as_tensors(std::vector<Tensor> each) const {
  return {std::move(each), core_->devices()};
}

Tensor Strategy::reduce(ReduceOp op, const PerReplica<Tensor>& value, Here here) {
  const CrossEntry entry(*core_, "reduce", here);
  check_components(*core_, value.size(), "reduce");
  return core_->ops().reduce(op, value, plain_destination(*core_))[0];
}

Tensor Strategy::reduce(ReduceOp op, const PerReplica<Tensor>& value, Along axis, Here here) {
  const std::int64_t axes[] = {axis.axis};
  if (op != ReduceOp::mean) return reduce(op, value, std::span<const std::int64_t>(axes), here);
  const CrossEntry entry(*core_, "reduce", here);
  check_components(*core_, value.size(), "reduce");
  std::int64_t rows = 0;
  for (int i = 0; i < value.size(); ++i) {
    rows += value[i].size(wrapped_axis(axis.axis, value[i], i));
  }
  if (detail::Workers* workers = core_->workers()) {
    workers->sum(std::span(&rows, 1), "MEAN of rows");
  }
  // Integers are added as int64: a mean must not wrap.
  const at::ScalarType dtype = value[0].scalar_type();
  std::vector<Tensor> numerators(static_cast<std::size_t>(value.size()));
  core_->on_lanes([&](int lane) {
    const at::NoGradGuard not_recorded;
    const Tensor& own = value[lane];
    const auto wide = c10::isIntegralType(dtype, /*includeBool=*/true) ? at::kLong : dtype;
    numerators[static_cast<std::size_t>(lane)] =
        own.sum({wrapped_axis(axis.axis, own, lane)}, /*keepdim=*/false, wide);
  });
  const Tensor total = reduce(ReduceOp::sum, as_tensors(std::move(numerators)), here);
  const bool narrow = dtype == at::kChar || dtype == at::kByte || dtype == at::kShort;
  const Tensor numerator = c10::isIntegralType(dtype, /*includeBool=*/true)
                               ? total.to(narrow ? at::kFloat : at::kDouble)
                               : total;
  return numerator / at::Scalar(rows);
}

Tensor Strategy::reduce(ReduceOp op, const PerReplica<Tensor>& value,
                        std::span<const std::int64_t> axes, Here here) {
  if (op == ReduceOp::mean) {
    throw InvalidUsage("reduce(mean) goes along one axis: along(axis)");
  }
  const CrossEntry entry(*core_, "reduce", here);
  check_components(*core_, value.size(), "reduce");
  return reduce(op, as_tensors(parts_along(*core_, op, value, axes)), here);
}

Tensor Strategy::reduce(ReduceOp op, const Tensor& value, Here here) {
  const CrossEntry entry(*core_, "reduce", here);
  // Every worker has one such value.
  if (detail::Workers* workers = core_->workers()) {
    return tensor::reduce_dense(
        detail::combine_of(op),
        workers->gather(value, fmt::format("{} of a plain tensor", op.name())));
  }
  if (op != ReduceOp::sum) return value;
  if (core_->replicas() != 1) {
    throw InvalidUsage(
        fmt::format("A non-DistributedValues value of shape {} cannot be reduced "
                    "with the given reduce op SUM: it is not one value a replica",
                    tensor::shape_text(value)));
  }
  return core_->ops().broadcast(value, plain_destination(*core_))[0];
}

Tensor Strategy::reduce(ReduceOp op, const at::Scalar& value, Here here) {
  const CrossEntry entry(*core_, "reduce", here);
  const bool zero = !value.isComplex() && value.toDouble() == 0;
  Tensor tensor = detail::scalar_tensor(value);
  // Workers meet whatever the value: another worker may have another one.
  if (core_->workers() != nullptr || op.picks()) return reduce(op, tensor, here);
  if (zero || op == ReduceOp::mean) return tensor;
  if (core_->replicas() != 1) {
    throw InvalidUsage(
        fmt::format("A non-DistributedValues value {} cannot be reduced with the "
                    "given reduce op SUM: it is not one value a replica",
                    tensor::scalar_text(value)));
  }
  return reduce(op, tensor, here);
}

Mirrored<Tensor> Strategy::reduce_to(ReduceOp op, const PerReplica<Tensor>& value,
                                     const Destinations& destinations, Here here) {
  const CrossEntry entry(*core_, "reduce_to", here);
  return core_->ops().reduce(op, value, destinations);
}

Colocated<Tensor> Strategy::reduce_to(ReduceOp op, const PerReplica<Tensor>& value,
                                      const Variable& destination, Here here) {
  const Mirrored<Tensor> result = reduce_to(op, value, Destinations(destination), here);
  return {local_results(result), result.shared_devices()};
}

Mirrored<Tensor> Strategy::reduce_to(ReduceOp op, const Tensor& value,
                                     const Destinations& destinations, Here here) {
  const CrossEntry entry(*core_, "reduce_to", here);
  return core_->ops().broadcast(reduce(op, value, here), destinations);
}

Colocated<Tensor> Strategy::reduce_to(ReduceOp op, const Tensor& value, const Variable& destination,
                                      Here here) {
  const Mirrored<Tensor> result = reduce_to(op, value, Destinations(destination), here);
  return {local_results(result), result.shared_devices()};
}

Mirrored<Tensor> Strategy::reduce_to(ReduceOp op, const at::Scalar& value,
                                     const Destinations& destinations, Here here) {
  const CrossEntry entry(*core_, "reduce_to", here);
  return core_->ops().broadcast(reduce(op, value, here), destinations);
}

Colocated<Tensor> Strategy::reduce_to(ReduceOp op, const at::Scalar& value,
                                      const Variable& destination, Here here) {
  const Mirrored<Tensor> result = reduce_to(op, value, Destinations(destination), here);
  return {local_results(result), result.shared_devices()};
}

std::vector<Mirrored<Tensor>> Strategy::batch_reduce_to(ReduceOp op,
                                                        std::span<const ReducePair> pairs,
                                                        Here here) {
  const CrossEntry entry(*core_, "batch_reduce_to", here);
  return core_->ops().batch_reduce(op, pairs);
}

std::vector<Colocated<Tensor>> Strategy::batch_reduce_to(
    ReduceOp op, const std::vector<std::pair<PerReplica<Tensor>, Variable>>& pairs, Here here) {
  std::vector<ReducePair> wanted;
  wanted.reserve(pairs.size());
  for (const auto& [value, destination] : pairs) wanted.push_back({value, destination});
  std::vector<Colocated<Tensor>> results;
  results.reserve(pairs.size());
  for (const Mirrored<Tensor>& result :
       batch_reduce_to(op, std::span<const ReducePair>(wanted), here)) {
    results.emplace_back(local_results(result), result.shared_devices());
  }
  return results;
}

// --- copies ----------------------------------------------------------------------------------

Mirrored<Tensor> Strategy::broadcast(const Tensor& tensor) {
  return broadcast(tensor, Destinations(core_->options().worker_devices));
}

Mirrored<Tensor> Strategy::broadcast(const Tensor& tensor, const Destinations& destinations) {
  const CrossEntry entry(*core_, "broadcast");
  return core_->ops().broadcast(tensor, destinations);
}

Colocated<Tensor> Strategy::broadcast(const Tensor& tensor, const Variable& destination) {
  const Mirrored<Tensor> result = broadcast(tensor, Destinations(destination));
  return {local_results(result), result.shared_devices()};
}

Tensor Strategy::gather(const PerReplica<Tensor>& value, std::int64_t axis, Here here) {
  const CrossEntry entry(*core_, "gather", here);
  check_components(*core_, value.size(), "gather");
  return core_->ops().all_gather(value, plain_destination(*core_), axis)[0];
}

std::vector<std::string> Strategy::gather(const std::string& text, Here here) {
  return gather(std::vector<std::string>{text}, here);
}

std::vector<std::string> Strategy::gather(const std::vector<std::string>& texts, Here here) {
  const CrossEntry entry(*core_, "gather", here);
  detail::Workers* workers = core_->workers();
  return workers != nullptr ? workers->gather(texts, "of texts") : texts;
}

std::vector<std::string> Strategy::gather(const PerReplica<std::string>& texts, Here here) {
  check_components(*core_, texts.size(), "gather");
  return gather(local_results(texts), here);
}

// --- Between workers. ------------------------------------------------------------------------

void Strategy::barrier(std::chrono::nanoseconds timeout, Here here) {
  const CrossEntry entry(*core_, "barrier", here);
  if (timeout.count() < 0) throw InvalidUsage("barrier: the timeout is negative");
  if (detail::Workers* workers = core_->workers()) workers->barrier({}, timeout);
}

Tensor Strategy::from_chief(const Tensor& value, Here here) {
  const CrossEntry entry(*core_, "from_chief", here);
  if (detail::Workers* workers = core_->workers()) return workers->any_from_chief(value, "of");
  if (!value.defined()) throw InvalidUsage("from_chief: the tensor is undefined");
  return value.detach().clone();
}

std::string Strategy::from_chief(const std::string& value, Here here) {
  const CrossEntry entry(*core_, "from_chief", here);
  detail::Workers* workers = core_->workers();
  return workers != nullptr ? workers->text_from_chief(value, "of a text") : value;
}

std::uint64_t Strategy::word_from_chief(std::uint64_t word, Here here) {
  const CrossEntry entry(*core_, "from_chief", here);
  detail::Workers* workers = core_->workers();
  return workers != nullptr ? workers->from_chief(word, "of a number") : word;
}

Tensor Strategy::fetch_component(const DeviceList& devices, const std::vector<Tensor>& values,
                                 const Device& device, const FetchFunction& fn) {
  const CrossEntry entry(*core_, "fetch");
  const auto here = std::find(devices.begin(), devices.end(), device);
  const auto index = static_cast<std::size_t>(here == devices.end() ? 0 : here - devices.begin());
  const DeviceScope at_the_source(devices[index].str());
  const Tensor result = fn ? fn(values[index]) : values[index];
  return core_->ops().broadcast(result, Destinations(device))[0];
}

Tensor Strategy::fetch(const Tensor& value, const Device& device, const FetchFunction& fn) {
  return fetch_component({plain_destination(*core_).devices().front()}, {value}, device, fn);
}

Tensor Strategy::fetch(const Variable& value, const Device& device, const FetchFunction& fn,
                       Here here) {
  const CrossEntry entry(*core_, "fetch", here);
  if (value.synchronization() == Synchronization::on_read) {
    return fetch_component({device}, {value.read()}, device, fn);
  }
  const std::vector<Component> components = value.components();
  return fetch_component(value.devices(), {components.begin(), components.end()}, device, fn);
}

coll::Work Strategy::grouped(std::string_view) {
  const CrossEntry entry(*core_, "group");
  auto done = std::make_shared<coll::Work::Shared>();
  done->finish(Status());
  return coll::Work(std::move(done));
}

// --- updates ---------------------------------------------------------------------------------

NonSlotDevices Strategy::non_slot_devices(const std::vector<Variable>& variables) const {
  const auto& options = core_->options();
  if (options.placement == detail::Placement::mirrored) return {options.parameter_devices};
  if (variables.empty()) {
    if (!core_->is_default()) return {options.parameter_devices};
    throw InvalidUsage(
        "non_slot_devices needs the variables being optimized here: their state goes "
        "where the one with the smallest name is");
  }
  const auto smallest =
      std::min_element(variables.begin(), variables.end(),
                       [](const Variable& a, const Variable& b) { return a.name() < b.name(); });
  return {smallest->devices()};
}

NonSlotVariable Strategy::non_slot_variable(std::string variable_name, const Tensor& initial,
                                            const std::vector<Variable>& variables) {
  const Scope there = colocate_vars_with(non_slot_devices(variables));
  return NonSlotVariable(variable(std::move(variable_name), initial));
}

namespace detail {

namespace {

/// One copy's part of an update: cross-replica context that knows the copy, nothing recorded.
void update_copy(const ThreadContext& caller, const UpdateTarget& target,
                 const std::function<void(const UpdateTarget&)>& body) {
  ThreadContext context = caller;
  context.updating = target;
  context.device = target.device.str();
  context.names += fmt::format("update_{}/", target.index);
  const ContextSwap updating(std::move(context));
  const at::NoGradGuard not_recorded;
  body(target);
}

void require_own_variable(Strategy& strategy, const char* method, const Variable& variable) {
  const VariableState& state = variable.state();
  if (state.core.get() != &strategy.core() && !state.core->is_default()) {
    throw InvalidUsage(fmt::format("Mixing different Strategy objects: {} of variable {}, which "
                                   "another strategy ({}) created",
                                   method, state.name, state.core->name()),
                       Code::failed_precondition);
  }
}

void update_copies(Strategy& strategy, const char* method, const DeviceList& devices,
                   const std::function<void(const UpdateTarget&)>& body) {
  StrategyCore& core = strategy.core();
  const CrossEntry entry(core, method);
  if (thread_context().updating) {
    throw InvalidUsage(
        fmt::format("{} inside an update: the copy is being updated already", method),
        Code::failed_precondition);
  }
  const Turn turn(core);
  const ThreadContext caller = thread_context();
  const auto target = [&](std::size_t i) { return UpdateTarget{static_cast<int>(i), devices[i]}; };
  if (devices == core.options().worker_devices && devices.size() > 1) {
    core.on_lanes(
        [&](int lane) { update_copy(caller, target(static_cast<std::size_t>(lane)), body); });
    return;
  }
  for (std::size_t i = 0; i < devices.size(); ++i) update_copy(caller, target(i), body);
}

}  // namespace

void run_updates(Strategy& strategy, const char* method, const Variable& variable,
                 const std::function<void(const UpdateTarget&)>& body) {
  require_own_variable(strategy, method, variable);
  update_copies(strategy, method, variable.state().devices, body);
}

void run_updates(Strategy& strategy, const char* method, const DeviceList& devices,
                 const std::function<void(const UpdateTarget&)>& body) {
  if (devices.empty()) {
    throw InvalidUsage(fmt::format("{}: no devices given; take non_slot_devices()", method));
  }
  update_copies(strategy, method, devices, body);
}

void run_batch_update(Strategy& strategy, const std::vector<Variable>& variables,
                      const std::vector<std::size_t>& lengths,
                      const std::function<void(std::size_t, const UpdateTarget&)>& body) {
  constexpr const char* kMethod = "batch_update";
  for (const std::size_t length : lengths) {
    if (length != variables.size()) {
      throw InvalidUsage(
          fmt::format("batch_update of {} variables with a list of {} arguments: give one for each",
                      variables.size(), length));
    }
  }
  for (const Variable& variable : variables) require_own_variable(strategy, kMethod, variable);
  for (std::size_t first = 0; first < variables.size();) {
    const DeviceList& devices = variables[first].state().devices;
    std::size_t end = first + 1;
    while (end < variables.size() && variables[end].state().devices == devices) ++end;
    update_copies(strategy, kMethod, devices, [&](const UpdateTarget& target) {
      for (std::size_t k = first; k < end; ++k) body(k, target);
    });
    first = end;
  }
}

}  // namespace detail
}  // namespace lockstep
