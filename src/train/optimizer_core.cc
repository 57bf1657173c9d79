#include "train/optimizer_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "strategy/meet_before_throwing.h"
#include "train/given_gradients.h"
#include "train/gradient_norm.h"
#include "train/known_optimizers.h"
#include "train/non_finite.h"
#include "train/one_pass_step.h"
#include "train/step_scale.h"

namespace lockstep::detail {

namespace {

std::shared_ptr<StrategyCore> core_of(Strategy& strategy) {
  require_cross(strategy, "optimizer");
  return strategy.shared_core();
}

const GradientOptions& checked(const GradientOptions& options) {
  if (options.bucket_bytes < 0 || options.check_every < 0) {
    throw InvalidUsage(
        fmt::format("optimizer: {} is {}; it is 0 or more",
                    options.bucket_bytes < 0 ? "bucket_bytes" : "check_every",
                    options.bucket_bytes < 0 ? options.bucket_bytes : options.check_every));
  }
  return options;
}

}  // namespace

OptimizerCore::OptimizerCore(Strategy& strategy, std::vector<ParameterGroup> groups,
                             std::string type, MakeOptimizer make, const GradientOptions& options)
    : strategy_(core_of(strategy)),
      groups_(std::move(groups)),
      type_(std::move(type)),
      make_(std::move(make)),
      options_(checked(options)),
      parameters_(train::collect_parameters(*strategy_, groups_)),
      copies_(make_copies()),
      made_options_(optimizer(0)),
      fixed_(*strategy_, parameters_),
      written_(*strategy_, parameters_),
      finite_(*strategy_, parameters_, options_.non_finite),
      arrivals_(parameters_.tensors.size(), train::Arrivals(parameters_.variables.size())) {
  for (int c = 0; c < copies(); ++c) {
    watches_.emplace_back(parameters_.tensors[static_cast<std::size_t>(c)], optimizer(c));
  }
  for (const Copy& each : copies_) fixed_.add_groups_of(*each.optimizer);
  copy_per_replica_ =
      copies() == strategy_->replicas() &&
      (copies() == 1 || std::all_of(parameters_.variables.begin(), parameters_.variables.end(),
                                    [&](const Variable& variable) {
                                      return variable.devices() ==
                                             strategy_->options().worker_devices;
                                    }));
  compare_workers();
  is_torchs_own_ = train::is_torchs_own(optimizer(0));
  check_parameters(Compare::made);
  for (train::ParameterWatch& each : watches_) each.begin();
  exchange_ = strategy_->workers() != nullptr
                  ? train::bucket_exchange(*strategy_, parameters_, options_)
                  : train::local_exchange(*strategy_, parameters_);
  sharing_.emplace(OptimizerSharing::Shared{.parameters = parameters_,
                                            .exchange = *exchange_,
                                            .arrivals = arrivals_,
                                            .watches = watches_},
                   type_);
  if (!is_copy_per_replica()) return;
  hooks_.emplace(parameters_, train::GradientHooks::Callbacks{
                                  .before = [this](int r) { sharing_->before_arrival(r); },
                                  .after = [this](int r, int p) { arrived(r, p); }});
  for (int r = 0; r < copies(); ++r) {
    for (int p = 0; p < parameters_.count(); ++p) {
      if (parameters_.on(r, p).requires_grad()) hooks_->add(r, p);
    }
  }
}

std::vector<OptimizerCore::Copy> OptimizerCore::make_copies() const {
  std::vector<Copy> copies;
  for (int c = 0; c < parameters_.variables.front().size(); ++c) {
    std::vector<torch::optim::OptimizerParamGroup> own;
    for (const ParameterGroup& group : groups_) {
      std::vector<Tensor> tensors;
      for (const Variable& variable : group.variables) tensors.emplace_back(variable[c]);
      if (group.options) {
        own.emplace_back(std::move(tensors), group.options->clone());
      } else {
        own.emplace_back(std::move(tensors));
      }
    }
    copies.push_back({.optimizer = make_(std::move(own))});
  }
  return copies;
}

std::shared_ptr<OptimizerCore> OptimizerCore::create(Strategy& strategy,
                                                     std::vector<ParameterGroup> groups,
                                                     std::string type, MakeOptimizer make,
                                                     const GradientOptions& options) {
  auto core = std::make_shared<OptimizerCore>(strategy, std::move(groups), std::move(type),
                                              std::move(make), options);
  std::shared_ptr<OptimizerList>& list = core->strategy().optimizers();
  if (!list) list = std::make_shared<OptimizerList>(core->strategy().replicas());
  core->sharing_->join(list);
  // It lives in the core, so it shares the core's count of owners.
  core->number_ = static_cast<std::uint64_t>(
      list->add(std::shared_ptr<OptimizerSharing>(core, &*core->sharing_)));
  return core;
}

void OptimizerCore::on_copies(const std::function<void(int)>& work) {
  strategy_->on_lanes([&](int lane) {
    for (int c = lane; c < copies(); c += strategy_->replicas()) work(c);
  });
}

tensor::ReplicaGenerator* OptimizerCore::step_generator(int index) {
  if (is_torchs_own_ || strategy_->is_default()) return nullptr;
  std::unique_ptr<tensor::ReplicaGenerator>& generator = copy(index).generator;
  // No replica has a negative number.
  const auto stream = -1 - static_cast<int>(number_);
  if (!generator) {
    generator = std::make_unique<tensor::ReplicaGenerator>(strategy_->seed(), stream);
  }
  // Not their sum: the next step would draw what a strategy of the next seed draws in this one.
  generator->reseed(tensor::mixed_seed(strategy_->seed(), iterations()));
  return generator.get();
}

void OptimizerCore::require_same_options() const {
  std::vector<const torch::optim::Optimizer*> each;
  for (int c = 0; c < copies(); ++c) each.push_back(&optimizer(c));
  train::require_same_options(each, strategy_->first_replica());
}

std::string OptimizerCore::describe_scale(const ApplyOptions& options,
                                          std::optional<std::int64_t> global_batch_size) const {
  return train::describe_scale(optimizer(0), made_options_, options, global_batch_size);
}

void OptimizerCore::reduce_gradients(Here here, std::string scale) {
  require_same_options();
  train::Gathered gathered;
  gathered.here = here;
  gathered.scale = std::move(scale);
  gathered.used.assign(parameters_.variables.size(), false);
  for (int p = 0; p < parameters_.count(); ++p) {
    for (int r = 0; r < copies(); ++r) {
      if (parameters_.on(r, p).grad().defined()) gathered.used[static_cast<std::size_t>(p)] = true;
    }
  }
  const bool sent = sharing_->sends_during_backward();
  for (int r = 0; r < copies(); ++r) {
    const bool has_arrived = !arrivals(r).order().empty();
    if (sent && has_arrived == arrivals(0).order().empty()) {
      throw InvalidUsage(
          fmt::format("apply: replica {} steps with the gradients of another pass than replica {}: "
                      "{} has used the pass before. All replicas call the same backward passes",
                      strategy_->first_replica() + r, strategy_->first_replica(),
                      sharing_->taken_by()),
          Code::failed_precondition);
    }
    // If gradients were sent, the first arrival has reported it. Accumulated gradients do not
    // arrive.
    if (!sent || !has_arrived) report_change(r);
    gathered.changed.push_back(watch(r).has_reported());
    watch(r).note_late_change();
  }
  sharing_->announce_apply();
  gathered.order = arrivals(0).order();
  if (options_.non_finite == NonFinite::error) {
    on_copies([&](int c) { finite_.record_rest(c, arrivals(c)); });
  }
  const bool changed = exchange_->finish(gathered);
  fixed_.fix_types();
  forget_arrivals();
  if (!changed) return;
  try {
    check_parameters(Compare::changed);
  } catch (const Mismatch&) {
    clear_gradients();
    throw;
  }
}

void OptimizerCore::forget_arrivals() {
  for (train::Arrivals& each : arrivals_) each.forget_all();
  for (train::ParameterWatch& each : watches_) each.forget_report();
  sharing_->forget();
}

void OptimizerCore::bind_gradients() {
  on_copies([&](int c) { exchange_->bind(c); });
}

void OptimizerCore::bind_own_gradients() {
  bind_gradients();
  separate_gradients();
}

// The copies may share the memory of a sum. An optimizer that is not torch's own may write to
// `.grad`, so each copy gets its own memory before any of them steps.
void OptimizerCore::separate_gradients() {
  if (is_torchs_own_) return;
  on_copies([&](int c) {
    if (c == 0) return;
    for (int p = 0; p < parameters_.count(); ++p) {
      Tensor& gradient = parameters_.on(c, p).mutable_grad();
      if (gradient.defined()) gradient = gradient.clone();
    }
  });
}

GradientsAndVariables OptimizerCore::sums() const {
  GradientsAndVariables all;
  for (int p = 0; p < parameters_.count(); ++p) {
    const Tensor& gradient = parameters_.on(0, p).grad();
    if (!gradient.defined()) continue;
    all.emplace_back(gradient, parameters_.variables[static_cast<std::size_t>(p)]);
  }
  return all;
}

std::shared_ptr<OptimizerCore> OptimizerCore::over(Strategy& strategy,
                                                   const std::vector<Variable>& variables) const {
  std::vector<ParameterGroup> groups = groups_;
  std::size_t next = 0;
  for (ParameterGroup& group : groups) {
    for (Variable& variable : group.variables) variable = variables.at(next++);
  }
  return create(strategy, std::move(groups), type_, make_, options_);
}

void OptimizerCore::step(const ApplyOptions& options) {
  result_ = {};
  const bool looked_at = observer_ || options.inspect || options.global_norm ||
                         options.clip_global_norm || options.clip_grad_norm ||
                         options_.non_finite != NonFinite::allow;
  if (!looked_at && is_torchs_own_) {
    take_step(Bound::no);
    return;
  }
  bind_gradients();
  if (look_at_sums(options) == Look::step) take_step(Bound::yes);
}

OptimizerCore::Look OptimizerCore::look_at_sums(const ApplyOptions& options) {
  if (observer_) observer_(parameters_);
  if (options.inspect) {
    options.inspect(sums());
    for (int c = 1; c < copies(); ++c) {
      for (int p = 0; p < parameters_.count(); ++p) {
        parameters_.on(c, p).mutable_grad() = parameters_.on(0, p).grad();
      }
    }
  }
  require_finite(When::before_step);
  if (options_.non_finite == NonFinite::skip && finite_.first_non_finite() >= 0) {
    clear_gradients();
    ++skipped_;
    result_.taken = false;
    return Look::skip;
  }
  const bool clips = options.clip_global_norm || options.clip_grad_norm;
  if (options.global_norm || clips) {
    result_.global_norm = train::norm_of_sums(*strategy_, parameters_);
  }
  if (clips) train::clip_sums(parameters_, options, *result_.global_norm);
  return Look::step;
}

void OptimizerCore::require_finite(When when) {
  if (options_.non_finite != NonFinite::error) return;
  const int first = finite_.first_non_finite();
  if (first < 0) return;
  const std::string what =
      fmt::format("{}; {}", train::describe_non_finite(parameters_.on(0, first).grad()),
                  finite_.origin_of(first));
  finite_.forget();
  clear_gradients();
  meet_before_throwing(strategy_->workers());
  throw DataError(fmt::format(
      "after {} steps the gradient of {}, summed over the replicas, is not finite: {}. "
      "{}. Look at the loss and its inputs, or lower the learning rate{}",
      iterations(), parameters_.name(first), what,
      when == When::before_step ? "No copy was changed"
                                : "The step had begun, so the parameters may have moved",
      when == When::before_step ? ", or say GradientOptions{.non_finite = NonFinite::skip}" : ""));
}

void OptimizerCore::take_step(Bound bound) {
  if (bound == Bound::yes) separate_gradients();
  try {
    on_copies([&](int c) {
      if (bound == Bound::no) exchange_->bind(c);
      step_copy(c);
      clear_gradients(c);
      watch(c).begin();
    });
  } catch (...) {
    // Another copy may have stepped, so all are compared before the next step.
    for (train::ParameterWatch& each : watches_) each.note_failed_step();
    clear_gradients();
    throw;
  }
  exchange_->release();
  count_step();
}

void OptimizerCore::step_copy(int copy) {
  if (train::step_in_one_pass(optimizer(copy))) return;
  std::optional<tensor::ReplicaGenerator::Scope> random;
  if (tensor::ReplicaGenerator* generator = step_generator(copy)) random.emplace(*generator);
  optimizer(copy).step();
}

void OptimizerCore::count_step() {
  sharing_->announce_step();
  const std::int64_t steps = ++iterations_;
  if (options_.check_every > 0 && steps % options_.check_every == 0) check_parameters();
}

void OptimizerCore::set_iterations(std::int64_t steps) {
  if (steps < 0) {
    throw InvalidUsage(fmt::format("set_iterations: {} steps; it is 0 or more", steps));
  }
  if (Workers* workers = strategy_->workers()) {
    workers->require_alike("set_iterations", {{"iterations", std::to_string(steps)}});
  }
  iterations_ = steps;
  equal_after_ = steps;
}

void OptimizerCore::clear_gradients() {
  on_copies([&](int c) { clear_gradients(c); });
  exchange_->release();
}

void OptimizerCore::clear_gradients(int copy) {
  for (int p = 0; p < parameters_.count(); ++p) parameters_.on(copy, p).mutable_grad() = Tensor();
}

void OptimizerCore::discard() {
  exchange_->discard();
  clear_gradients();
  forget_arrivals();
  finite_.forget();
  for (train::ParameterWatch& each : watches_) each.cancel_evaluations();
  sharing_->announce_discard();
}

void OptimizerCore::distributed_apply(const ReplicaGradientsAndVariables& pairs,
                                      const ApplyOptions& options) {
  const std::vector<int> numbers = train::parameter_numbers_of(pairs, parameters_);
  for (int c = 0; c < copies(); ++c) fixed_.require_same_groups(c, optimizer(c), type_);
  require_same_options();
  discard();  // the step uses only the gradients given here
  require_equal_if_changed(options);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const PerReplica<Tensor>& given = pairs[i].first;
    for (int r = 0; r < given.size(); ++r) {
      if (given[r].defined()) finite_.record(r, numbers[i], given[r]);
    }
  }
  Strategy& strategy = strategy_->strategy();
  const std::vector<Colocated<Tensor>> sums = strategy.batch_reduce_to(ReduceOp::sum, pairs);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    for (int c = 0; c < copies(); ++c) {
      parameters_.on(c, numbers[i]).mutable_grad() =
          sums[i][c].is_sparse() ? sums[i][c].coalesce() : sums[i][c];
    }
  }
  result_ = {};
  if (look_at_sums(options) == Look::step) take_step(Bound::yes);
}

// Gradients given by hand do not pass through the exchange, which would report the change.
void OptimizerCore::require_equal_if_changed(const ApplyOptions& options) {
  std::int64_t changed =
      std::count_if(watches_.begin(), watches_.end(),
                    [](const train::ParameterWatch& each) { return each.has_changed(); });
  if (Workers* workers = strategy_->workers()) {
    workers->sum(std::span(&changed, 1), "changed parameters, " + describe_scale(options, {}));
  }
  if (changed > 0) check_parameters(Compare::changed);
}

std::string OptimizerCore::explain() const {
  if (is_copy_per_replica()) {
    std::string text = exchange_->explain();
    const int shared = sharing_->count_shared();
    if (shared > 0) {
      text += fmt::format("  {} of other optimizers, too: all are sent after backward\n", shared);
    }
    return text;
  }
  return fmt::format("gradients: given by hand; {} copies for {} replicas\n", copies(),
                     strategy_->replicas());
}

}  // namespace lockstep::detail
