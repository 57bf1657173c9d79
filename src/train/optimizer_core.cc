#include "train/optimizer_core.h"

#include <ATen/ops/norm.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "base/log.h"
#include "strategy/meet_before_throwing.h"
#include "strategy/variable_state.h"
#include "tensor/torch_text.h"
#include "train/known_optimizers.h"
#include "train/non_finite.h"
#include "train/one_pass_step.h"

namespace lockstep::detail {

namespace {

[[noreturn]] void wrong_use(const std::string& message) {
  throw InvalidUsage(message, Code::failed_precondition);
}

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

void check_variable(const Variable& variable, const train::Parameters& before,
                    const StrategyCore& strategy) {
  if (before.number_of(variable) >= 0) {
    throw InvalidUsage(fmt::format(
        "optimizer: variable {} is given twice; it would be stepped twice", variable.name()));
  }
  if (variable.state().core.get() != &strategy) {
    wrong_use(
        fmt::format("Mixing different Strategy objects: optimizer of variable {}, which "
                    "another strategy ({}) created",
                    variable.name(), variable.state().core->name()));
  }
  if (before.variables.empty()) return;
  const Variable& first = before.variables.front();
  if (variable.size() != first.size()) {
    wrong_use(
        fmt::format("optimizer: variable {} has {} copies, variable {} has {}: those of one "
                    "optimizer must have as many; make one for each kind",
                    first.name(), first.size(), variable.name(), variable.size()));
  }
}

train::Parameters collect_parameters(const StrategyCore& strategy,
                                     const std::vector<ParameterGroup>& groups) {
  train::Parameters parameters;
  for (const ParameterGroup& group : groups) {
    for (const Variable& variable : group.variables) {
      check_variable(variable, parameters, strategy);
      parameters.variables.push_back(variable);
    }
  }
  if (parameters.variables.empty()) throw InvalidUsage("optimizer: No variables provided");
  for (int c = 0; c < parameters.variables.front().size(); ++c) {
    std::vector<Tensor>& tensors = parameters.tensors.emplace_back();
    for (const Variable& variable : parameters.variables) tensors.emplace_back(variable[c]);
  }
  return parameters;
}

}  // namespace

OptimizerCore::OptimizerCore(Strategy& strategy, std::vector<ParameterGroup> groups,
                             std::string type, MakeOptimizer make, const GradientOptions& options)
    : strategy_(core_of(strategy)),
      groups_(std::move(groups)),
      type_(std::move(type)),
      make_(std::move(make)),
      options_(checked(options)),
      parameters_(collect_parameters(*strategy_, groups_)),
      copies_(make_copies()),
      fixed_(*strategy_, parameters_),
      written_(*strategy_, parameters_),
      arrivals_(parameters_.tensors.size(), train::Arrivals(parameters_.variables.size())),
      watches_(parameters_.tensors.begin(), parameters_.tensors.end()) {
  for (const Copy& each : copies_) fixed_.add_groups_of(*each.optimizer);
  copy_per_replica_ =
      copies() == strategy_->replicas() &&
      (copies() == 1 || std::all_of(parameters_.variables.begin(), parameters_.variables.end(),
                                    [&](const Variable& variable) {
                                      return variable.devices() ==
                                             strategy_->options().worker_devices;
                                    }));
  forget_looks();
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
  // Living as long as the core is.
  core->number_ = static_cast<std::uint64_t>(
      list->add(std::shared_ptr<OptimizerSharing>(core, &*core->sharing_)));
  return core;
}

void OptimizerCore::restore_hooks(int replica) {
  if (hooks_) hooks_->restore(replica);
}

// --- on the replica's thread -----------------------------------------------------------------

void OptimizerCore::require_copy_per_replica(const char* method) const {
  if (is_copy_per_replica()) return;
  if (copies() == strategy_->replicas()) {
    wrong_use(
        fmt::format("{}: the optimizer's variables have copies on other devices than the replicas, "
                    "or in another order. Compute gradients with torch::autograd::grad() and give "
                    "them to apply_gradients()",
                    method));
  }
  wrong_use(fmt::format(
      "{}: variable {} has {} for {} replicas, so that their backward passes would "
      "write to one .grad. Compute gradients with torch::autograd::grad() and give "
      "them to apply_gradients()",
      method, parameters_.variables.front().name(),
      copies() == 1 ? "one copy" : fmt::format("{} copies", copies()), strategy_->replicas()));
}

void OptimizerCore::on_copies(const std::function<void(int)>& work) {
  strategy_->on_lanes([&](int lane) {
    for (int c = lane; c < copies(); c += strategy_->replicas()) work(c);
  });
}

void OptimizerCore::arrived(int replica, int parameter) {
  train::Arrivals& own = arrivals(replica);
  const std::int64_t pass = sharing_->pass_of(replica);
  own.note_pass(pass);
  // An accumulated gradient does not count: a later pass, or the step, finds it in `.grad`.
  if (copy(replica).accumulating > 0) return;
  if (!parameters_.on(replica, parameter).grad().defined()) return;  // a function gave none
  if (own.has(parameter)) {
    wrong_use(fmt::format(
        "a second backward pass before apply(): the gradient of {} has arrived already and may be "
        "on its way. Step after each pass, or let passes add up inside of `auto scope = "
        "optimizer.accumulate();`. After an exception in a step call reset() first{}",
        parameters_.name(parameter), sharing_->advice()));
  }
  fixed_.require_shape(replica, parameter);
  fixed_.require_same_type(replica, parameter);
  if (own.order().empty()) report_change(replica);
  own.add(parameter, pass);
  look_at_own(replica, parameter, parameters_.on(replica, parameter).grad());
  // The gradient of a shared parameter belongs to the optimizer that steps first.
  if (!sharing_->shares_any()) exchange_->arrived(replica, parameter);
  if (sharing_->sends_during_backward()) {
    written_.drop_sample(replica, parameter);
  } else {
    written_.take_sample(replica, parameter);
  }
}

void OptimizerCore::report_change(int replica) {
  exchange_->report_change(replica, watch(replica).report());
}

void OptimizerCore::begin_accumulation(int replica) {
  require_copy_per_replica("accumulate");
  sharing_->before_arrival(replica);
  if (!arrivals(replica).order().empty()) {
    wrong_use(
        "accumulate() after a backward pass outside of it: its gradients may be on their way; "
        "begin the scope before the first pass of a step");
  }
  ++copy(replica).accumulating;
}

void OptimizerCore::end_accumulation(int replica) noexcept { --copy(replica).accumulating; }

tensor::ReplicaGenerator* OptimizerCore::step_generator(int index) {
  if (is_torchs_own_ || strategy_->is_default()) return nullptr;
  std::unique_ptr<tensor::ReplicaGenerator>& generator = copy(index).generator;
  // No replica has a negative number.
  const auto stream = -1 - static_cast<int>(number_);
  if (!generator) {
    generator = std::make_unique<tensor::ReplicaGenerator>(strategy_->seed(), stream);
  }
  generator->reseed(strategy_->seed() + static_cast<std::uint64_t>(iterations()));
  return generator.get();
}

void OptimizerCore::check_complete(int replica) {
  if (copy(replica).accumulating > 0) {
    wrong_use("apply() inside of an accumulation: end its scope first");
  }
  restore_hooks(replica);
  fixed_.require_same_groups(replica, optimizer(replica), type_);
  std::string missing;
  bool lost = false;  // the missing one
  bool any = false;
  for (int p = 0; p < parameters_.count(); ++p) {
    const Tensor& parameter = parameters_.on(replica, p);
    fixed_.require_trainable_as_made(replica, p);
    if (!parameter.requires_grad()) continue;
    if (parameter.grad().defined()) {
      fixed_.require_shape(replica, p);
      fixed_.require_same_type(replica, p);
      any = true;
    } else if (missing.empty()) {
      missing = parameters_.name(p);
      lost = arrivals(replica).has_lost(p);
    }
  }
  if (lost && !options_.allow_unused) {
    wrong_use(fmt::format(
        "apply: parameter {} has no gradient on replica {} any more: {}, which has the same "
        "parameter, was first. Call backward() before the apply() of each of them",
        missing, strategy_->first_replica() + replica, sharing_->taken_by()));
  }
  if (!any && !options_.allow_unused) {
    throw InvalidUsage("apply: No gradients provided for any variable; call backward() first");
  }
  if (!missing.empty() && !options_.allow_unused) {
    throw InvalidUsage(fmt::format(
        "apply: parameter {} has no gradient on replica {}: the loss does not depend on it. Freeze "
        "it (requires_grad_(false)), or say GradientOptions{{.allow_unused = true}}",
        missing, strategy_->first_replica() + replica));
  }
  written_.warn_of_writes(replica, arrivals(replica).order(), sharing_->description());
}

KeptGradients OptimizerCore::keep_defined(const GradientsAndVariables& pairs) const {
  KeptGradients kept;
  for (const auto& [gradient, variable] : pairs) {
    if (gradient.defined()) {
      kept.gradients.push_back(gradient.detach());
      kept.variables.push_back(variable);
    } else if (!options_.allow_unused) {
      throw InvalidUsage(
          fmt::format("apply_gradients: variable {} has no gradient. Leave it out, or say "
                      "GradientOptions{{.allow_unused = true}}",
                      variable.name()));
    }
  }
  if (kept.variables.empty()) {
    throw InvalidUsage(pairs.empty() ? "apply_gradients: No variables provided"
                                     : "apply_gradients: No gradients provided for any variable");
  }
  return kept;
}

void OptimizerCore::reduce_gradients(Here here) {
  train::Gathered gathered;
  gathered.here = here;
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
      wrong_use(fmt::format(
          "apply: replica {} steps with the gradients of another pass than replica {}: {} has used "
          "the pass before. All replicas call the same backward passes",
          strategy_->first_replica() + r, strategy_->first_replica(), sharing_->taken_by()));
    }
    // If gradients were sent, the first arrival has reported it. Accumulated gradients do not
    // arrive.
    if (!sent || !has_arrived) report_change(r);
    gathered.changed.push_back(watch(r).has_reported());
    watch(r).note_late_change();
  }
  sharing_->announce_apply();
  gathered.order = arrivals(0).order();
  if (options_.non_finite == NonFinite::error) on_copies([&](int c) { look_at_rest(c); });
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

// An optimizer that is not torch's own may write to `.grad`, so no copy steps before all have
// theirs.
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

double OptimizerCore::norm_of_sums() {
  const int lanes = strategy_->replicas();
  std::vector<double> norms(parameters_.variables.size(), 0);
  strategy_->on_lanes([&](int lane) {
    const at::NoGradGuard not_recorded;
    for (int p = lane; p < parameters_.count(); p += lanes) {
      const Tensor& gradient = parameters_.on(0, p).grad();
      if (!gradient.defined()) continue;
      const Tensor values = gradient.is_sparse() ? gradient.coalesce()._values() : gradient;
      norms[static_cast<std::size_t>(p)] = values.norm().item<double>();
    }
  });
  double squares = 0;  // in one order, whatever the lanes
  for (const double norm : norms) squares += norm * norm;
  return std::sqrt(squares);
}

// Of the sums, which all replicas share: scaled once.
void OptimizerCore::clip(const ApplyOptions& options) {
  const bool as_torch = options.clip_grad_norm.has_value();
  if (as_torch && options.clip_global_norm) {
    throw InvalidUsage(
        "apply: clip_global_norm (TensorFlow's formula) and clip_grad_norm (torch's) are both "
        "given; say one of them");
  }
  const double limit = as_torch ? *options.clip_grad_norm : *options.clip_global_norm;
  if (!(limit > 0)) {
    throw InvalidUsage(fmt::format("{} is {}; it must be positive",
                                   as_torch ? "clip_grad_norm" : "clip_global_norm", limit));
  }
  const at::NoGradGuard not_recorded;
  const double norm = *result_.global_norm;
  if (!std::isfinite(norm)) return;
  const double scale = as_torch ? limit / (norm + 1e-6) : limit / norm;
  if (!(scale < 1)) return;
  std::set<const void*> scaled;
  for (int c = 0; c < copies(); ++c) {
    for (int p = 0; p < parameters_.count(); ++p) {
      Tensor gradient = parameters_.on(c, p).grad();
      if (!gradient.defined()) continue;
      Tensor values = gradient.is_sparse() ? gradient._values() : gradient;
      if (scaled.insert(values.data_ptr()).second) values.mul_(scale);
    }
  }
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
  if (options_.non_finite == NonFinite::skip && first_non_finite() >= 0) {
    clear_gradients();
    ++skipped_;
    result_.taken = false;
    return Look::skip;
  }
  const bool clips = options.clip_global_norm || options.clip_grad_norm;
  if (options.global_norm || clips) result_.global_norm = norm_of_sums();
  if (clips) clip(options);
  return Look::step;
}

// All replicas of all workers have the same sums, so all of them find the same.
int OptimizerCore::first_non_finite() {
  const int lanes = strategy_->replicas();
  std::vector<int> found(static_cast<std::size_t>(lanes), parameters_.count());
  strategy_->on_lanes([&](int lane) {
    for (int p = lane; p < parameters_.count(); p += lanes) {
      const Tensor& gradient = parameters_.on(0, p).grad();
      if (!gradient.defined() || train::is_finite(gradient)) continue;
      found[static_cast<std::size_t>(lane)] = p;
      return;
    }
  });
  const int first = *std::min_element(found.begin(), found.end());
  return first < parameters_.count() ? first : -1;
}

// Before the sum is formed, which may be written over it, and while it is in the cache.
void OptimizerCore::look_at_own(int replica, int parameter, const Tensor& gradient) {
  if (options_.non_finite != NonFinite::error) return;
  not_finite_[static_cast<std::size_t>(replica)][static_cast<std::size_t>(parameter)] =
      train::is_finite(gradient) ? 0 : 1;
}

// Gradients of passes that were accumulated have not arrived.
void OptimizerCore::look_at_rest(int replica) {
  for (int p = 0; p < parameters_.count(); ++p) {
    const Tensor& gradient = parameters_.on(replica, p).grad();
    if (arrivals(replica).has(p)) continue;
    if (gradient.defined()) {
      look_at_own(replica, p, gradient);
    } else {
      not_finite_[static_cast<std::size_t>(replica)][static_cast<std::size_t>(p)] = 0;
    }
  }
}

void OptimizerCore::forget_looks() {
  not_finite_.assign(static_cast<std::size_t>(strategy_->replicas()),
                     std::vector<char>(parameters_.variables.size(), 0));
}

std::string OptimizerCore::culprits_of(int parameter) {
  std::vector<std::int64_t> flags;
  for (const auto& own : not_finite_) flags.push_back(own[static_cast<std::size_t>(parameter)]);
  if (Workers* workers = strategy_->workers()) flags = workers->gather(flags, "not finite");
  std::vector<std::size_t> replicas;
  for (std::size_t r = 0; r < flags.size(); ++r) {
    if (flags[r] != 0) replicas.push_back(r);
  }
  if (replicas.empty()) return "each replica's own was finite when it came";
  return fmt::format("replica {} computed it", fmt::join(replicas, ", "));
}

void OptimizerCore::require_finite(When when) {
  if (options_.non_finite != NonFinite::error) return;
  const int first = first_non_finite();
  if (first < 0) return;
  const std::string what = fmt::format(
      "{}; {}", train::describe_non_finite(parameters_.on(0, first).grad()), culprits_of(first));
  forget_looks();
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
  on_copies([&](int c) {
    if (bound == Bound::no) exchange_->bind(c);
    if (!train::step_in_one_pass(optimizer(c))) {
      std::optional<tensor::ReplicaGenerator::Scope> random;
      if (tensor::ReplicaGenerator* generator = step_generator(c)) random.emplace(*generator);
      optimizer(c).step();
    }
    clear_gradients(c);
    watch(c).begin();
  });
  exchange_->release();
  count_step();
}

void OptimizerCore::count_step() {
  sharing_->announce_step();
  const std::int64_t steps = ++iterations_;
  if (options_.check_every > 0 && steps % options_.check_every == 0) check_parameters();
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
  forget_looks();
  for (train::ParameterWatch& each : watches_) each.cancel_evaluations();
  sharing_->announce_discard();
}

void OptimizerCore::check_given(const PerReplica<Tensor>& gradient,
                                const Variable& variable) const {
  for (int i = 0; i < gradient.size(); ++i) {
    const Tensor& own = gradient[i];
    if (own.defined() && own.sizes() != variable.shape()) {
      throw InvalidUsage(fmt::format("apply_gradients: the gradient of {} is {}, the variable {}",
                                     variable.name(), tensor::shape_text(own),
                                     tensor::shape_text(variable[0])));
    }
    if (own.defined() && exchange_->is_being_sent(own)) {
      throw InvalidUsage(fmt::format(
          "apply_gradients: the gradient given for {} is .grad of a backward pass, which is being "
          "added up over the workers already. Step with apply(), compute it with "
          "torch::autograd::grad(), or say GradientOptions{{.overlap = Overlap::never}}",
          variable.name()));
    }
  }
}

void OptimizerCore::distributed_apply(const ReplicaGradientsAndVariables& pairs) {
  if (pairs.empty()) throw InvalidUsage("apply_gradients: No variables provided");
  std::vector<int> numbers;
  for (const auto& [gradient, variable] : pairs) {
    const int number = parameters_.number_of(variable);
    if (number < 0) {
      throw InvalidUsage(
          fmt::format("apply_gradients: variable {} is none of this optimizer's", variable.name()));
    }
    if (std::find(numbers.begin(), numbers.end(), number) != numbers.end()) {
      throw InvalidUsage(fmt::format(
          "apply_gradients: variable {} is given twice; add its gradients up", variable.name()));
    }
    numbers.push_back(number);
    check_given(gradient, variable);
  }
  discard();  // a step is taken with those given here only
  require_equal_if_changed();
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const PerReplica<Tensor>& given = pairs[i].first;
    for (int r = 0; r < given.size(); ++r) {
      if (given[r].defined()) look_at_own(r, numbers[i], given[r]);
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
  if (look_at_sums({}) == Look::step) take_step(Bound::yes);
}

// Gradients given by hand do not go through the exchange, which tells the other workers.
void OptimizerCore::require_equal_if_changed() {
  std::int64_t changed =
      std::count_if(watches_.begin(), watches_.end(),
                    [](const train::ParameterWatch& each) { return each.has_changed(); });
  if (Workers* workers = strategy_->workers()) {
    workers->sum(std::span(&changed, 1), "changed parameters");
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
