// Reading and writing variables in each context (docs/variables.md has the table).
#include "lockstep/variable.h"

#include <ATen/ops/full_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <array>
#include <bit>
#include <sstream>

#include "strategy/variable_access.h"
#include "tensor/torch_text.h"

namespace lockstep {

using detail::check_agreed;
using detail::component;
using detail::index_on;
using detail::of_first_replica;
using detail::on_copies;
using detail::require_aggregation;
using detail::Standing;
using detail::standing;
using detail::VariableState;
using detail::writes_alone;
using detail::wrong_context;
using detail::wrong_value;

namespace {

enum class Write { assign, add, sub };

constexpr std::string_view name_of(Write write) {
  constexpr std::string_view names[] = {"assign", "assign_add", "assign_sub"};
  return names[static_cast<int>(write)];
}

// --- One copy. ------------------------------------------------------------------------------

void check_shape(const VariableState& state, const Tensor& value, Write write) {
  const Tensor& own = state.components.front();
  if (value.sizes() != own.sizes()) {
    wrong_value(fmt::format("{} of variable {}: the value has shape {}, the variable {}",
                            name_of(write), state.name, tensor::shape_text(value),
                            tensor::shape_text(own)));
  }
}

void apply(const Tensor& target, Write write, const Tensor& value) {
  const at::NoGradGuard not_recorded;
  if (write == Write::assign) target.copy_(value);
  if (write == Write::add) target.add_(value.to(target.scalar_type()));
  if (write == Write::sub) target.sub_(value.to(target.scalar_type()));
}

void apply(const Tensor& target, Write write, const at::Scalar& value) {
  const at::NoGradGuard not_recorded;
  // Cast first: adding 0.5 to an integer adds 0, as assigning does.
  const at::Scalar cast =
      target.is_floating_point() || target.is_complex() || value.isIntegral(true)
          ? value
          : at::Scalar(value.toLong());
  if (write == Write::assign) target.fill_(cast);
  if (write == Write::add) target.add_(cast);
  if (write == Write::sub) target.sub_(cast);
}

// --- All copies. ----------------------------------------------------------------------------

Tensor read_across(const VariableState& state) {
  if (!state.on_read()) {
    return component(state, detail::readable_component(state.devices)).detach().clone();
  }
  if (state.aggregation == Aggregation::only_first_replica) {
    return of_first_replica(state, component(state, 0));
  }
  const ReduceOp op = detail::reduce_op_of(state);
  return state.core->strategy().reduce(op, PerReplica<Tensor>(state.components, state.devices));
}

/// A sync-on-read variable written from outside of step functions.
template <class Value>
Value share_of(const VariableState& state, Write write, const Value& value) {
  if (!state.on_read() || state.aggregation != Aggregation::sum) return value;
  if (write != Write::assign) {
    wrong_value(
        fmt::format("SyncOnReadVariable {} with aggregation SUM takes no {} outside of step "
                    "functions: what would each replica's part be? assign it",
                    state.name, name_of(write)));
  }
  const int replicas = state.core->replicas_in_sync();
  const at::ScalarType dtype = state.components.front().scalar_type();
  // Integers are divided as integers, and as double for floating copies: libtorch's own quotient of
  // them is a float32, which forgets large counts.
  const bool whole = c10::isIntegralType(dtype, /*includeBool=*/true);
  if constexpr (std::is_same_v<Value, Tensor>) {
    if (!c10::isIntegralType(value.scalar_type(), /*includeBool=*/true)) return value / replicas;
    return whole ? value.div(replicas, "trunc") : value.to(at::kDouble) / replicas;
  } else {
    if (whole && value.isIntegral(/*includeBool=*/true)) return value.toLong() / replicas;
    if (value.isComplex()) return value.toComplexDouble() / static_cast<double>(replicas);
    return value.toDouble() / replicas;
  }
}

// --- Inside a step function. ----------------------------------------------------------------

bool is_zero(const at::Scalar& value) { return !value.isComplex() && value.toDouble() == 0; }

bool equal(const at::Scalar& a, const at::Scalar& b) {
  if (a.isComplex() || b.isComplex()) return a.toComplexDouble() == b.toComplexDouble();
  return a.isIntegral(true) && b.isIntegral(true) ? a.toLong() == b.toLong()
                                                  : a.toDouble() == b.toDouble();
}

/// In the merge function: what the replicas' values become, written to every copy.
void write_merged(const Variable& variable, Write write, const PerReplica<Tensor>& each) {
  const VariableState& state = variable.state();
  Strategy& strategy = state.core->strategy();
  const Colocated<Tensor> merged =
      state.aggregation == Aggregation::only_first_replica
          ? strategy.broadcast(of_first_replica(state, each[0]), variable)
          : strategy.reduce_to(detail::reduce_op_of(state), each, variable);
  on_copies(variable, "assign", [&](const Tensor& copy, const detail::UpdateTarget& target) {
    apply(copy, write, merged.get(target.device));
  });
}

/// Whether all replicas of all workers gave the same number.
bool same_everywhere(const VariableState& state, const PerReplica<at::Scalar>& each) {
  bool same = true;
  for (int i = 1; i < each.size(); ++i) same = same && equal(each[0], each[i]);
  detail::Workers* workers = state.core->workers();
  if (workers == nullptr) return same;
  const auto number = each[0].toComplexDouble();
  const std::array<std::int64_t, 3> mine = {std::bit_cast<std::int64_t>(number.real()),
                                            std::bit_cast<std::int64_t>(number.imag()), same};
  const std::vector<std::int64_t> all = workers->gather(mine, state.name);
  for (std::size_t i = 0; i < all.size(); ++i) same = same && all[i] == all[i % mine.size()];
  return same;
}

void write_merged(const Variable& variable, Write write, const PerReplica<at::Scalar>& each) {
  const VariableState& state = variable.state();
  // The only replica of several workers is not all there is: what it says is added to the others'.
  const bool counts = state.aggregation == Aggregation::sum && each.size() == 1 &&
                      state.core->workers() != nullptr && !is_zero(each[0]);
  if (counts || !same_everywhere(state, each)) {
    std::vector<Tensor> tensors;
    for (int i = 0; i < each.size(); ++i) {
      tensors.push_back(at::full_like(state.components.front().detach(), each[i]));
    }
    write_merged(variable, write, PerReplica<Tensor>(std::move(tensors), each.devices()));
    return;
  }
  if (state.aggregation == Aggregation::sum && each.size() > 1 && !is_zero(each[0])) {
    wrong_value(
        fmt::format("A non-DistributedValues value {} cannot be reduced with the given "
                    "reduce op SUM: every replica gave the same number to variable {}. Give "
                    "a tensor to have them added up",
                    tensor::scalar_text(each[0]), state.name));
  }
  on_copies(variable, "assign",
            [&](const Tensor& copy, const detail::UpdateTarget&) { apply(copy, write, each[0]); });
}

template <class Value>
Tensor write(const Variable& variable, Write how, const Value& value, Here here) {
  const VariableState& state = variable.state();
  if constexpr (std::is_same_v<Value, Tensor>) check_shape(state, value, how);
  const Standing at = standing(state);
  switch (at.place) {
    case Standing::Place::plain:
    case Standing::Place::updating:
      apply(component(state, at.index), how, value);
      return component(state, at.index);
    case Standing::Place::cross: {
      const Value part = share_of(state, how, value);
      on_copies(variable, "assign",
                [&](const Tensor& copy, const detail::UpdateTarget&) { apply(copy, how, part); });
      const bool readable = !state.on_read() || state.aggregation != Aggregation::none;
      return readable ? variable.read(here) : Tensor();
    }
    case Standing::Place::replica:
      break;
  }
  if (writes_alone(state)) {
    apply(component(state, at.index), how, value);
  } else {
    require_aggregation(state, name_of(how));
    const detail::Verb verb(name_of(how), here, state.name);
    get_replica_context()->merge_at(
        here,
        [](const Variable& merged, const PerReplica<Write>& hows, const PerReplica<Value>& each) {
          check_agreed(merged, hows);
          write_merged(merged, hows[0], each);
        },
        variable, how, value);
  }
  return component(state, at.index);
}

Tensor write_mirrored(const Variable& variable, Write how, const Mirrored<Tensor>& value,
                      Here here) {
  const VariableState& state = variable.state();
  if (standing(state).place != Standing::Place::cross || state.on_read()) {
    return write(variable, how, value.any(), here);
  }
  on_copies(variable, "assign", [&](const Tensor& copy, const detail::UpdateTarget& target) {
    const int index = [&] {
      for (int i = 0; i < value.size(); ++i) {
        if (value.devices()[static_cast<std::size_t>(i)] == target.device) return i;
      }
      return 0;
    }();
    check_shape(state, value[index], how);
    apply(copy, how, value[index]);
  });
  return variable.read(here);
}

template <class Value>
Tensor write_local(const Variable& variable, const Value& value) {
  const VariableState& state = variable.state();
  if constexpr (std::is_same_v<Value, Tensor>) check_shape(state, value, Write::assign);
  const Standing at = standing(state);
  if (at.place == Standing::Place::cross) {
    wrong_context(
        fmt::format("assign_local of variable {} is for step functions: it writes one "
                    "replica's copy; use assign",
                    state.name));
  }
  apply(component(state, at.index), Write::assign, value);
  return component(state, at.index);
}

}  // namespace

const std::string& Variable::name() const noexcept { return state_->name; }
const DeviceList& Variable::devices() const noexcept { return state_->devices; }
at::ScalarType Variable::dtype() const { return state_->components.front().scalar_type(); }
at::IntArrayRef Variable::shape() const { return state_->components.front().sizes(); }
bool Variable::trainable() const noexcept { return state_->trainable; }
Synchronization Variable::synchronization() const noexcept { return state_->synchronization; }
Aggregation Variable::aggregation() const noexcept { return state_->aggregation; }
int Variable::size() const noexcept { return static_cast<int>(state_->components.size()); }

Tensor Variable::read(Here here) const {
  const Standing at = standing(*state_);
  if (at.place == Standing::Place::cross) {
    const detail::Verb verb("read", here, state_->name);
    return read_across(*state_);
  }
  return component(*state_, at.index);
}

Tensor Variable::assign(const Tensor& value, Here here) const {
  return write(*this, Write::assign, value, here);
}
Tensor Variable::assign(const at::Scalar& value, Here here) const {
  return write(*this, Write::assign, value, here);
}
Tensor Variable::assign(const Mirrored<Tensor>& value, Here here) const {
  return write_mirrored(*this, Write::assign, value, here);
}
Tensor Variable::assign_add(const Tensor& value, Here here) const {
  return write(*this, Write::add, value, here);
}
Tensor Variable::assign_add(const at::Scalar& value, Here here) const {
  return write(*this, Write::add, value, here);
}
Tensor Variable::assign_add(const Mirrored<Tensor>& value, Here here) const {
  return write_mirrored(*this, Write::add, value, here);
}
Tensor Variable::assign_sub(const Tensor& value, Here here) const {
  return write(*this, Write::sub, value, here);
}
Tensor Variable::assign_sub(const at::Scalar& value, Here here) const {
  return write(*this, Write::sub, value, here);
}
Tensor Variable::assign_sub(const Mirrored<Tensor>& value, Here here) const {
  return write_mirrored(*this, Write::sub, value, here);
}
Tensor Variable::assign_local(const Tensor& value, Here) const { return write_local(*this, value); }
Tensor Variable::assign_local(const at::Scalar& value, Here) const {
  return write_local(*this, value);
}

std::vector<Component> Variable::components() const {
  std::vector<Component> all;
  for (int i = 0; i < size(); ++i) all.push_back((*this)[i]);
  return all;
}

Component Variable::operator[](int index) const {
  if (index < 0 || index >= size()) detail::no_such_component("Variable", index, size());
  return {component(*state_, index), *this, index};
}

Component Variable::component_on(const Device& device) const {
  const int index = index_on(*state_, device);
  if (index < 0) detail::no_component_on("Variable", device, state_->devices);
  return (*this)[index];
}

Tensor Variable::export_value(Here here) const {
  if (state_->core->is_default()) return component(*state_, 0).detach().clone();
  const detail::Verb verb("export_value", here, state_->name);
  const detail::CrossEntry entry(*state_->core, "export_value");
  return read_across(*state_);
}

void Variable::restore_value(const Tensor& saved) const {
  if (!state_->core->is_default()) detail::require_cross(*state_->core, "restore_value");
  assign(saved);
}

const Device& Component::device() const noexcept {
  return owner_.devices()[static_cast<std::size_t>(index_)];
}

std::string Component::name() const {
  return index_ == 0 ? owner_.name() : fmt::format("{}/replica_{}", owner_.name(), index_);
}

void Component::assign(const Tensor& value) const { apply(*this, Write::assign, value); }
void Component::assign(const at::Scalar& value) const { apply(*this, Write::assign, value); }
void Component::assign_add(const Tensor& value) const { apply(*this, Write::add, value); }
void Component::assign_add(const at::Scalar& value) const { apply(*this, Write::add, value); }
void Component::assign_sub(const Tensor& value) const { apply(*this, Write::sub, value); }
void Component::assign_sub(const at::Scalar& value) const { apply(*this, Write::sub, value); }

std::ostream& operator<<(std::ostream& out, const Variable& variable) {
  const VariableState& state = variable.state();
  const char* kind = state.core->is_default() ? "Variable"
                     : state.on_read()        ? "SyncOnReadVariable"
                     : state.core->options().placement == detail::Placement::central
                         ? "AggregatingVariable"
                         : "MirroredVariable";
  out << kind << ":{";
  for (int i = 0; i < variable.size(); ++i) {
    out << (i == 0 ? "\n  " : ",\n  ") << i << ": " << variable[i].name() << " = ";
    detail::print(out, variable[i]);
  }
  return out << "\n}";
}

std::ostream& operator<<(std::ostream& out, const NonSlotVariable& variable) {
  return out << variable.variable();
}

const Variable* value_container(const Component& component) { return &component.variable(); }

}  // namespace lockstep
