#include "train/optimizer_core.h"

#include <ATen/ops/norm.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

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

}  // namespace

OptimizerCore::OptimizerCore(Strategy& strategy, std::vector<ParameterGroup> groups,
                             std::string type, MakeOptimizer make, const GradientOptions& options)
    : strategy_(strategy.shared_core()),
      groups_(std::move(groups)),
      type_(std::move(type)),
      make_(std::move(make)),
      options_(options) {
  require_cross(strategy, "optimizer");
  if (options_.bucket_bytes < 0 || options_.check_every < 0) {
    throw InvalidUsage(
        fmt::format("optimizer: {} is {}; it is 0 or more",
                    options_.bucket_bytes < 0 ? "bucket_bytes" : "check_every",
                    options_.bucket_bytes < 0 ? options_.bucket_bytes : options_.check_every));
  }
  for (const ParameterGroup& group : groups_) {
    for (const Variable& variable : group.variables) {
      if (number_of(variable) >= 0) {
        throw InvalidUsage(
            fmt::format("optimizer: variable {} is given twice; it would be stepped "
                        "twice",
                        variable.name()));
      }
      if (variable.state().core.get() != strategy_.get()) {
        wrong_use(
            fmt::format("Mixing different Strategy objects: optimizer of variable {}, which "
                        "another strategy ({}) created",
                        variable.name(), variable.state().core->name()));
      }
      parameters_.variables.push_back(variable);
      const Variable& first = parameters_.variables.front();
      if (variable.size() != first.size()) {
        wrong_use(
            fmt::format("optimizer: variable {} has {} copies, variable {} has {}: those of one "
                        "optimizer must have as many; make one for each kind",
                        first.name(), first.size(), variable.name(), variable.size()));
      }
    }
  }
  if (parameters_.variables.empty()) throw InvalidUsage("optimizer: No variables provided");
  for (int c = 0; c < parameters_.variables.front().size(); ++c) {
    std::vector<Tensor>& tensors_of_copy = parameters_.tensors.emplace_back();
    for (const Variable& variable : parameters_.variables) {
      tensors_of_copy.emplace_back(variable[c]);
    }
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
    auto copy = std::make_unique<Copy>(parameters_.variables.size());
    copy->optimizer = make_(std::move(own));
    for (const auto& group : copy->optimizer->param_groups()) {
      copy->group_sizes.push_back(group.params().size());
    }
    copies_.push_back(std::move(copy));
  }
  for (int p = 0; p < parameters_.count(); ++p) {
    const Tensor& first = parameters_.on(0, p);
    trainable_.push_back(first.requires_grad());
    numbers_.emplace(first.unsafeGetTensorImpl(), p);
  }
  if (std::find(trainable_.begin(), trainable_.end(), true) == trainable_.end()) {
    throw InvalidUsage(
        fmt::format("optimizer: none of its {} variables is trainable (the first is {}): "
                    "requires_grad is false for all. Unfreeze some before the optimizer is made",
                    parameters_.count(), parameters_.variables.front().name()));
  }
  copy_per_replica_ =
      copies() == strategy_->replicas() &&
      (copies() == 1 || std::all_of(parameters_.variables.begin(), parameters_.variables.end(),
                                    [&](const Variable& variable) {
                                      return variable.devices() ==
                                             strategy_->options().worker_devices;
                                    }));
  forget_looks();
  compare_workers();
  sharers_ = std::vector<std::atomic<int>>(parameters_.variables.size());
  is_torchs_own_ = train::is_torchs_own(optimizer(0));
  check_parameters(Compare::made);
  for (int c = 0; c < copies(); ++c) watch_parameters(c);
  exchange_ = strategy_->workers() != nullptr
                  ? train::bucket_exchange(*strategy_, parameters_, options_)
                  : train::local_exchange(*strategy_, parameters_);
  if (!is_copy_per_replica()) return;
  for (int r = 0; r < copies(); ++r) {
    for (int p = 0; p < parameters_.count(); ++p) {
      if (parameters_.on(r, p).requires_grad()) copy(r).hooks.push_back(hook(r, p));
    }
  }
}

std::shared_ptr<OptimizerCore> OptimizerCore::create(Strategy& strategy,
                                                     std::vector<ParameterGroup> groups,
                                                     std::string type, MakeOptimizer make,
                                                     const GradientOptions& options) {
  auto core = std::make_shared<OptimizerCore>(strategy, std::move(groups), std::move(type),
                                              std::move(make), options);
  std::shared_ptr<OptimizerList>& list = core->strategy().optimizers();
  if (!list) list = std::make_shared<OptimizerList>(core->strategy().replicas());
  core->list_ = list;
  core->join();
  core->number_ = static_cast<std::uint64_t>(list->add(core));
  return core;
}

void OptimizerCore::join() {
  for (const auto& other : list_->others(*this)) {
    for (int p = 0; p < parameters_.count(); ++p) {
      const int theirs = other->number_of(parameters_.on(0, p));
      if (theirs < 0) continue;
      if (!other->sends_during_backward() || !other->has_arrivals()) continue;
      list_.reset();  // not joined
      wrong_use(fmt::format(
          "optimizer: parameter {} is {}'s, too, which is sending the gradients of a backward "
          "pass. Call its apply() or discard() before another optimizer is made",
          parameters_.variables[static_cast<std::size_t>(p)].name(), other->describe()));
    }
  }
  for (const auto& other : list_->others(*this)) {
    for (int p = 0; p < parameters_.count(); ++p) {
      const int theirs = other->number_of(parameters_.on(0, p));
      if (theirs < 0) continue;
      add_sharers(p, 1);
      other->add_sharers(theirs, 1);
    }
  }
}

OptimizerCore::~OptimizerCore() {
  for (const auto& copy : copies_) {
    for (const Hook& hook : copy->hooks) unhook(hook);
  }
  if (!list_) return;
  for (const auto& other : list_->others(*this)) {
    for (int p = 0; p < parameters_.count(); ++p) {
      const int theirs = other->number_of(parameters_.on(0, p));
      if (theirs >= 0) other->add_sharers(theirs, -1);
    }
  }
}

void OptimizerCore::add_sharers(int parameter, int count) {
  sharers_[static_cast<std::size_t>(parameter)] += count;
  all_sharers_ += count;
}

// The step of another optimizer may take the gradient of a shared parameter, so it must not be
// under way. The others of its bucket wait with it.
bool OptimizerCore::sends_during_backward() const {
  return all_sharers_.load() == 0 && exchange_->sends_during_backward();
}

bool OptimizerCore::has_arrivals() const {
  return std::any_of(copies_.begin(), copies_.end(),
                     [](const auto& copy) { return !copy->arrivals.order().empty(); });
}

class OptimizerCore::BeforeArrival : public torch::autograd::FunctionPreHook {
 public:
  BeforeArrival(OptimizerCore& core, int replica) : core_(core), replica_(replica) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    core_.before_arrival(replica_);
    return gradients;
  }

 private:
  OptimizerCore& core_;
  int replica_;
};

OptimizerCore::Hook OptimizerCore::hook(int replica, int parameter) {
  // The variable itself keeps its accumulator only weakly.
  std::shared_ptr<torch::autograd::Node> accumulator =
      torch::autograd::impl::grad_accumulator(parameters_.on(replica, parameter));
  using torch::autograd::variable_list;
  const std::uintptr_t after =
      accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [this, replica, parameter](const variable_list& outputs, const variable_list&) {
            arrived(replica, parameter);
            return outputs;
          }));
  auto before = std::make_unique<BeforeArrival>(*this, replica);
  const torch::autograd::FunctionPreHook* const key = before.get();
  accumulator->add_pre_hook(std::move(before));
  return {parameter, std::move(accumulator), after, key};
}

void OptimizerCore::unhook(const Hook& hook) {
  hook.accumulator->del_post_hook(hook.after);
  std::erase_if(hook.accumulator->pre_hooks(),
                [&](const auto& each) { return each.get() == hook.before; });
}

void OptimizerCore::restore_hooks(int replica) {
  for (Hook& own : copy(replica).hooks) {
    const Tensor& parameter = parameters_.on(replica, own.parameter);
    if (torch::autograd::impl::try_get_grad_accumulator(parameter) == own.accumulator) continue;
    if (!parameter.requires_grad()) continue;
    unhook(own);
    own = hook(replica, own.parameter);
  }
}

// --- other optimizers of the strategy --------------------------------------------------------

int OptimizerCore::number_of(const Tensor& tensor) const {
  const auto found = numbers_.find(tensor.unsafeGetTensorImpl());
  return found != numbers_.end() ? found->second : -1;
}

std::string OptimizerCore::describe() const {
  const std::string first = parameters_.variables.front().name();
  const int rest = parameters_.count() - 1;
  return rest == 0 ? fmt::format("{} over {}", type_, first)
                   : fmt::format("{} over {} and {} more", type_, first, rest);
}

std::string OptimizerCore::others_text() const {
  std::vector<std::string> names;
  for (const auto& other : list_->others(*this)) names.push_back(other->describe());
  if (names.empty()) return "";
  return fmt::format(
      ". If the pass was meant for another optimizer ({}), keep it from these parameters: name its "
      "own in backward(inputs=...), freeze these meanwhile (requires_grad_(false)), or call "
      "discard() after it",
      fmt::join(names, "; "));
}

void OptimizerCore::lose_passes_to(const OptimizerCore& other) {
  lose_gradients_to(other, "the apply()");
  if (!is_copy_per_replica() || !other.is_copy_per_replica()) return;
  bool any = false;
  for (int r = 0; r < copies(); ++r) {
    any = copy(r).arrivals.leave_behind(other.copy(r).arrivals.passes()) || any;
  }
  if (!any) return;
  left_by_ = fmt::format("the apply() of {}", other.describe());
  if (sends_during_backward()) exchange_->settle();
}

void OptimizerCore::lose_gradients_to(const OptimizerCore& other, const char* by) {
  bool any = false;
  for (int p = 0; p < parameters_.count(); ++p) {
    if (!is_shared(p) || other.number_of(parameters_.on(0, p)) < 0) continue;
    for (int r = 0; r < copies(); ++r) {
      if (!copy(r).arrivals.has(p)) continue;
      copy(r).arrivals.lose(p);
      exchange_->forget(r, p);
      any = true;
    }
  }
  if (any) left_by_ = fmt::format("{} of {}", by, other.describe());
}

void OptimizerCore::accept_step_of(const OptimizerCore& other) {
  for (int p = 0; p < parameters_.count(); ++p) {
    if (!is_shared(p) || other.number_of(parameters_.on(0, p)) < 0) continue;
    for (int c = 0; c < copies(); ++c) {
      copy(c).watch.accept(parameters_.tensors[static_cast<std::size_t>(c)], p);
    }
  }
}

void OptimizerCore::before_arrival(int replica) {
  if (copy(replica).arrivals.any_left_behind()) drop_left_behind(replica);
}

void OptimizerCore::drop_left_behind(int replica) {
  Copy& own = copy(replica);
  if (own.arrivals.any_waiting() && sends_during_backward()) {
    wrong_use(
        fmt::format("a second backward pass before apply(): gradients of two passes, one of which "
                    "{} has used, are on their way. Step or discard() after each pass{}",
                    left_by_, others_text()));
  }
  for (const int p : own.arrivals.take_left_behind()) {
    parameters_.on(replica, p).mutable_grad() = Tensor();
    exchange_->forget(replica, p);
    if (warned_of_left_.exchange(true)) continue;
    log_info(
        "{}: the gradient of {} that the pass of {} left behind is dropped, since another pass "
        "begins. To let passes add up use accumulate(); not to compute it, name the other "
        "optimizer's parameters in backward(inputs=...), or freeze these meanwhile "
        "(requires_grad_(false))",
        describe(), parameters_.variables[static_cast<std::size_t>(p)].name(), left_by_);
  }
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
  Copy& own = copy(replica);
  const std::int64_t pass = list_->pass_of(replica);
  own.arrivals.note_pass(pass);
  if (own.accumulating > 0) {
    // Not counted: a later pass, or the step, finds the gradient where it is.
    return;
  }
  if (!parameters_.on(replica, parameter).grad().defined()) return;  // a function gave none
  if (own.arrivals.has(parameter)) {
    wrong_use(fmt::format(
        "a second backward pass before apply(): the gradient of {} has arrived already and may be "
        "on its way. Step after each pass, or let passes add up inside of `auto scope = "
        "optimizer.accumulate();`. After an exception in a step call reset() first{}",
        parameters_.variables[static_cast<std::size_t>(parameter)].name(), others_text()));
  }
  check_shape(replica, parameter);
  check_type(replica, parameter);
  if (own.arrivals.order().empty()) report_change(replica);
  own.arrivals.add(parameter, pass);
  look_at_own(replica, parameter, parameters_.on(replica, parameter).grad());
  // Where two optimizers have a parameter, the one that steps first takes its gradient.
  if (all_sharers_.load() == 0) exchange_->arrived(replica, parameter);
  const bool sampled =
      strategy_->replicas_in_sync() > 1 && !warned_of_written_.load() && !sends_during_backward();
  own.samples[static_cast<std::size_t>(parameter)] =
      sampled ? train::GradientSample(parameters_.on(replica, parameter).grad())
              : train::GradientSample();
}

void OptimizerCore::report_change(int replica) {
  Copy& own = copy(replica);
  own.reported = own.changed ||
                 (!own.evaluating &&
                  own.watch.has_changed(parameters_.tensors[static_cast<std::size_t>(replica)]));
  exchange_->report_change(replica, own.reported);
}

void OptimizerCore::check_type(int replica, int parameter) const {
  const auto number = static_cast<std::size_t>(parameter);
  const at::ScalarType now = parameters_.on(replica, parameter).scalar_type();
  if (types_.empty() || types_[number] == now) return;
  wrong_use(fmt::format(
      "apply: parameter {} was {} in the optimizer's first step and is {} now. Convert the module "
      "(to()) on every copy of every worker before the first step, or make another optimizer",
      parameters_.variables[number].name(), c10::toString(types_[number]), c10::toString(now)));
}

// A group that was added to one of torch's optimizers has gradients that are not summed.
void OptimizerCore::check_groups(int replica) const {
  const auto& own = optimizer(replica).param_groups();
  const std::vector<std::size_t>& made_with = copy(replica).group_sizes;
  const bool same =
      std::equal(own.begin(), own.end(), made_with.begin(), made_with.end(),
                 [](const auto& group, std::size_t size) { return group.params().size() == size; });
  if (same) return;
  wrong_use(fmt::format(
      "apply: replica {}'s {} has other parameter groups than it was made with ({} of them, now "
      "{}): add_param_group() on local() adds parameters whose gradients are not summed over the "
      "replicas. Make another optimizer with all groups (ParameterGroup)",
      strategy_->first_replica() + replica, type_, made_with.size(), own.size()));
}

void OptimizerCore::check_shape(int replica, int parameter) const {
  const Tensor& own = parameters_.on(replica, parameter);
  if (own.grad().sizes() == own.sizes()) return;
  throw InvalidUsage(
      fmt::format("the gradient of {} is {}, the parameter {}: something of another "
                  "shape was put into .grad",
                  parameters_.variables[static_cast<std::size_t>(parameter)].name(),
                  tensor::shape_text(own.grad()), tensor::shape_text(own)));
}

void OptimizerCore::begin_accumulation(int replica) {
  require_copy_per_replica("accumulate");
  Copy& own = copy(replica);
  if (own.arrivals.any_left_behind()) drop_left_behind(replica);
  if (!own.arrivals.order().empty()) {
    wrong_use(
        "accumulate() after a backward pass outside of it: its gradients may be on their way; "
        "begin the scope before the first pass of a step");
  }
  ++own.accumulating;
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

void OptimizerCore::begin_evaluations(int replica) { copy(replica).evaluating = true; }

void OptimizerCore::end_evaluations(int replica) {
  watch_parameters(replica);
  copy(replica).evaluating = false;
}

void OptimizerCore::check_complete(int replica) {
  const Copy& own = copy(replica);
  if (own.accumulating > 0) {
    wrong_use("apply() inside of an accumulation: end its scope first");
  }
  restore_hooks(replica);
  check_groups(replica);
  std::string missing;
  bool lost = false;  // the missing one
  bool any = false;
  for (int p = 0; p < parameters_.count(); ++p) {
    const Tensor& parameter = parameters_.on(replica, p);
    const Variable& variable = parameters_.variables[static_cast<std::size_t>(p)];
    if (parameter.requires_grad() != trainable_[static_cast<std::size_t>(p)]) {
      wrong_use(
          fmt::format("apply: parameter {} was {} when the optimizer was made and is not so any "
                      "more; make another optimizer after freezing or unfreezing",
                      variable.name(), parameter.requires_grad() ? "frozen" : "trainable"));
    }
    if (!parameter.requires_grad()) continue;
    if (parameter.grad().defined()) {
      check_shape(replica, p);
      check_type(replica, p);
      any = true;
    } else if (missing.empty()) {
      missing = variable.name();
      lost = own.arrivals.has_lost(p);
    }
  }
  if (lost && !options_.allow_unused) {
    wrong_use(fmt::format(
        "apply: parameter {} has no gradient on replica {} any more: {}, which has the same "
        "parameter, was first. Call backward() before the apply() of each of them",
        missing, strategy_->first_replica() + replica, left_by_));
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
  warn_of_written_gradients(replica);
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
  const bool sent = sends_during_backward();
  for (int r = 0; r < copies(); ++r) {
    Copy& own = copy(r);
    if (sent && own.arrivals.order().empty() != copy(0).arrivals.order().empty()) {
      wrong_use(fmt::format(
          "apply: replica {} steps with the gradients of another pass than replica {}: {} has used "
          "the pass before. All replicas call the same backward passes",
          strategy_->first_replica() + r, strategy_->first_replica(), left_by_));
    }
    // Else the first arrival has reported it. Of passes that were accumulated nothing has arrived.
    if (!sent || own.arrivals.order().empty()) report_change(r);
    gathered.changed.push_back(own.reported);
    // A change that came after the flag had left is told with the next step.
    own.changed = !own.evaluating && !own.reported &&
                  own.watch.has_changed(parameters_.tensors[static_cast<std::size_t>(r)]);
  }
  for (const auto& other : list_->others(*this)) other->lose_passes_to(*this);
  gathered.order = copy(0).arrivals.order();
  if (options_.non_finite == NonFinite::error) on_copies([&](int c) { look_at_rest(c); });
  const bool changed = exchange_->finish(gathered);
  if (types_.empty()) {
    for (int p = 0; p < parameters_.count(); ++p) {
      types_.push_back(parameters_.on(0, p).scalar_type());
    }
  }
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
  for (const auto& copy : copies_) {
    copy->arrivals.forget_all();
    copy->reported = false;
  }
  left_by_.clear();
}

// A program that clips each replica's gradients before they are summed is not to do so unawares.
void OptimizerCore::warn_of_written_gradients(int replica) {
  if (strategy_->replicas_in_sync() == 1 || warned_of_written_.load()) return;
  const Copy& own = copy(replica);
  for (const int p : own.arrivals.order()) {
    const train::GradientSample& sample = own.samples[static_cast<std::size_t>(p)];
    if (!sample.was_written(parameters_.on(replica, p).grad())) continue;
    if (warned_of_written_.exchange(true)) return;
    log_warning(
        "{}: something was written to .grad of {} between backward and apply(), on replica {}: "
        "what each replica has there is summed. clip_grad_norm_ clips one replica's gradients "
        "then, not their sum; to clip the sum say apply(replica, {{.clip_grad_norm = ...}})",
        describe(), parameters_.variables[static_cast<std::size_t>(p)].name(),
        strategy_->first_replica() + replica);
    return;
  }
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
    if (copy(replica).arrivals.has(p)) continue;
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
      iterations(), parameters_.variables[static_cast<std::size_t>(first)].name(), what,
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
    watch_parameters(c);
  });
  exchange_->release();
  count_step();
}

void OptimizerCore::watch_parameters(int index) {
  copy(index).watch.begin(parameters_.tensors[static_cast<std::size_t>(index)]);
}

void OptimizerCore::count_step() {
  for (const auto& other : list_->others(*this)) other->accept_step_of(*this);
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
  list_->end_passes();
  for (int c = 0; c < copies(); ++c) {
    if (std::exchange(copy(c).evaluating, false)) watch_parameters(c);
  }
  for (const auto& other : list_->others(*this)) {
    other->lose_gradients_to(*this, "the discard()");
  }
}

int OptimizerCore::number_of(const Variable& variable) const {
  for (int p = 0; p < parameters_.count(); ++p) {
    if (&parameters_.variables[static_cast<std::size_t>(p)].state() == &variable.state()) return p;
  }
  return -1;
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
    const int number = number_of(variable);
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
  std::int64_t changed = 0;
  for (int c = 0; c < copies(); ++c) {
    changed += copy(c).watch.has_changed(parameters_.tensors[static_cast<std::size_t>(c)]) ? 1 : 0;
  }
  if (Workers* workers = strategy_->workers()) {
    workers->sum(std::span(&changed, 1), "changed parameters");
  }
  if (changed > 0) check_parameters(Compare::changed);
}

std::string OptimizerCore::explain() const {
  if (is_copy_per_replica()) {
    std::string text = exchange_->explain();
    const auto shared = std::count_if(sharers_.begin(), sharers_.end(),
                                      [](const auto& others) { return others.load() > 0; });
    if (shared > 0) {
      text += fmt::format("  {} of other optimizers, too: all are sent after backward\n", shared);
    }
    return text;
  }
  return fmt::format("gradients: given by hand; {} copies for {} replicas\n", copies(),
                     strategy_->replicas());
}

}  // namespace lockstep::detail
