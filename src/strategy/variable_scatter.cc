// Writing rows of variables.
// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <ATen/TensorOperators.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <unordered_map>

#include "strategy/variable_access.h"
#include "tensor/torch_text.h"

namespace lockstep {

using detail::check_agreed;
using detail::component;
using detail::on_copies;
using detail::require_aggregation;
using detail::Standing;
using detail::standing;
using detail::VariableState;
using detail::writes_alone;
using detail::wrong_value;

namespace {

enum class Scatter { add, sub, mul, div, min, max, update };

constexpr std::string_view name_of(Scatter scatter) {
  constexpr std::string_view names[] = {"scatter_add",   "scatter_sub", "scatter_mul",
                                        "scatter_div",   "scatter_min", "scatter_max",
                                        "scatter_update"};
  return names[static_cast<int>(scatter)];
}

/// Whether slices of several replicas can be put one after the other.
constexpr bool adds_up(Scatter scatter) {
  return scatter == Scatter::add || scatter == Scatter::sub || scatter == Scatter::mul ||
         scatter == Scatter::div;
}

/// Positions of rows in rounds: a row that occurs k times is in the first k rounds, so that no
/// round has it twice and the values of a row meet it in their order.
std::vector<std::vector<std::int64_t>> rounds_of(const Tensor& rows) {
  const Tensor on_cpu = rows.cpu().contiguous();
  const auto* const row = on_cpu.data_ptr<std::int64_t>();
  std::unordered_map<std::int64_t, std::size_t> seen;
  std::vector<std::vector<std::int64_t>> rounds;
  for (std::int64_t i = 0; i < on_cpu.numel(); ++i) {
    const std::size_t round = seen[row[i]]++;
    if (round == rounds.size()) rounds.emplace_back();
    rounds[round].push_back(i);
  }
  return rounds;
}

/// target[rows[i]] = combine(target[rows[i]], values[i]). libtorch's own index_reduce_ would print
/// that it is a beta version.
template <class Combine>
void combine_rows(const Tensor& target, const Tensor& rows, const Tensor& values,
                  const Combine& combine) {
  for (const std::vector<std::int64_t>& positions : rounds_of(rows)) {
    const Tensor which = at::tensor(positions, rows.options());
    const Tensor at = rows.index_select(0, which);
    target.index_copy_(0, at, combine(target.index_select(0, at), values.index_select(0, which)));
  }
}

void apply(const Tensor& target, Scatter scatter, const IndexedSlices& slices) {
  const at::NoGradGuard not_recorded;
  const Tensor rows = slices.indices.to(at::kLong);
  const Tensor values = slices.values.to(target.scalar_type());
  switch (scatter) {
    case Scatter::add:
      target.index_add_(0, rows, values);
      return;
    case Scatter::sub:
      target.index_add_(0, rows, values, -1);
      return;
    case Scatter::mul:
      combine_rows(target, rows, values, [](const Tensor& a, const Tensor& b) { return a * b; });
      return;
    case Scatter::div:
      combine_rows(target, rows, values, [](const Tensor& a, const Tensor& b) {
        const bool floating = a.is_floating_point() || a.is_complex();
        // Integers are divided as C++ and TensorFlow do: towards zero.
        return floating ? a.div(b) : a.div(b, "trunc");
      });
      return;
    case Scatter::min:
      combine_rows(target, rows, values,
                   [](const Tensor& a, const Tensor& b) { return at::minimum(a, b); });
      return;
    case Scatter::max:
      combine_rows(target, rows, values,
                   [](const Tensor& a, const Tensor& b) { return at::maximum(a, b); });
      return;
    case Scatter::update:
      target.index_copy_(0, rows, values);
      return;
  }
}

void check_slices(const VariableState& state, Scatter scatter, const IndexedSlices& slices) {
  const Tensor& own = state.components.front();
  const auto refuse = [&](const std::string& why) {
    wrong_value(fmt::format("{} of variable {}: {}", name_of(scatter), state.name, why));
  };
  if (own.dim() == 0) refuse("a scalar has no rows");
  if (slices.indices.dim() != 1) refuse("indices must have one dimension");
  if (slices.values.dim() != own.dim() || slices.values.size(0) != slices.indices.size(0) ||
      slices.values.sizes().slice(1) != own.sizes().slice(1)) {
    refuse(fmt::format("values have shape {}, which is not {} rows of a variable of shape {}",
                       tensor::shape_text(slices.values), slices.indices.numel(),
                       tensor::shape_text(own)));
  }
  if (slices.indices.numel() > 0) {
    const auto low = slices.indices.min().item<std::int64_t>();
    const auto high = slices.indices.max().item<std::int64_t>();
    if (low < 0 || high >= own.size(0)) {
      refuse(fmt::format("index {} is outside of 0..{}", low < 0 ? low : high, own.size(0) - 1));
    }
  }
}

void scatter_merged(const Variable& variable, Scatter how, const PerReplica<Tensor>& indices,
                    const PerReplica<Tensor>& values) {
  const VariableState& state = variable.state();
  IndexedSlices merged{indices[0], values[0]};
  if (state.aggregation != Aggregation::only_first_replica) {
    std::vector<Tensor> all_indices;
    for (const Tensor& each : local_results(indices)) all_indices.push_back(each.to(at::kLong));
    Strategy& strategy = state.core->strategy();
    merged = {strategy.gather(PerReplica<Tensor>(std::move(all_indices), indices.devices())),
              strategy.gather(values)};
    if (state.aggregation == Aggregation::mean) {
      merged.values = merged.values / state.core->replicas_in_sync();
    }
  } else if (detail::Workers* workers = state.core->workers()) {
    merged = {workers->from_chief(indices[0].to(at::kLong), state.name),
              workers->from_chief(values[0], state.name)};
  }
  on_copies(variable, "scatter",
            [&](const Tensor& copy, const detail::UpdateTarget&) { apply(copy, how, merged); });
}

Tensor scatter(const Variable& variable, Scatter how, const IndexedSlices& slices, Here here) {
  const VariableState& state = variable.state();
  if (state.on_read()) {
    throw Unsupported(fmt::format("{} of the sync-on-read variable {}", name_of(how), state.name));
  }
  check_slices(state, how, slices);
  const Standing at = standing(state);
  const bool aggregates =
      state.aggregation == Aggregation::sum || state.aggregation == Aggregation::mean;
  if (at.place != Standing::Place::plain && aggregates && !adds_up(how)) {
    throw Unsupported(
        fmt::format("{} of variable {} with aggregation {}: what several replicas say has no sum; "
                    "use aggregation only_first_replica",
                    name_of(how), state.name, to_string(state.aggregation)));
  }
  if (at.place == Standing::Place::cross) {
    on_copies(variable, "scatter",
              [&](const Tensor& copy, const detail::UpdateTarget&) { apply(copy, how, slices); });
    return variable.read(here);
  }
  if (at.place != Standing::Place::replica || writes_alone(state)) {
    apply(component(state, at.index), how, slices);
    return component(state, at.index);
  }
  require_aggregation(state, name_of(how));
  const detail::Verb verb(name_of(how), here, state.name);
  get_replica_context()->merge_at(
      here,
      [](const Variable& merged, const PerReplica<Scatter>& hows, const PerReplica<Tensor>& indices,
         const PerReplica<Tensor>& values) {
        check_agreed(merged, hows);
        scatter_merged(merged, hows[0], indices, values);
      },
      variable, how, slices.indices, slices.values);
  return component(state, at.index);
}

}  // namespace

Tensor Variable::scatter_add(const IndexedSlices& slices, Here here) const {
  return scatter(*this, Scatter::add, slices, here);
}
Tensor Variable::scatter_sub(const IndexedSlices& slices, Here here) const {
  return scatter(*this, Scatter::sub, slices, here);
}
Tensor Variable::scatter_mul(const IndexedSlices& slices, Here here) const {
  return scatter(*this, Scatter::mul, slices, here);
}
Tensor Variable::scatter_div(const IndexedSlices& slices, Here here) const {
  return scatter(*this, Scatter::div, slices, here);
}
Tensor Variable::scatter_min(const IndexedSlices& slices, Here here) const {
  return scatter(*this, Scatter::min, slices, here);
}
Tensor Variable::scatter_max(const IndexedSlices& slices, Here here) const {
  return scatter(*this, Scatter::max, slices, here);
}
Tensor Variable::scatter_update(const IndexedSlices& slices, Here here) const {
  return scatter(*this, Scatter::update, slices, here);
}

}  // namespace lockstep
