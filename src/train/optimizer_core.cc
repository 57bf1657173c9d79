#include "train/optimizer_core.h"

#include <ATen/ops/norm.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "strategy/meet_before_throwing.h"
#include "strategy/variable_state.h"
#include "tensor/torch_text.h"
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
    auto copy = std::make_unique<Copy>();
    copy->optimizer = make_(std::move(own));
    copy->arrived.assign(parameters_.variables.size(), 0);
    copies_.push_back(std::move(copy));
  }
  for (int p = 0; p < parameters_.count(); ++p) {
    trainable_.push_back(parameters_.on(0, p).requires_grad());
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
  exchange_ = strategy_->workers() != nullptr
                  ? train::bucket_exchange(*strategy_, parameters_, options_)
                  : train::local_exchange(*strategy_, parameters_);
  if (!is_copy_per_replica()) return;
  for (int r = 0; r < copies(); ++r) {
    for (int p = 0; p < parameters_.count(); ++p) hook(r, p);
  }
}

OptimizerCore::~OptimizerCore() {
  for (const Hook& hook : hooks_) hook.accumulator->del_post_hook(hook.key);
}

void OptimizerCore::hook(int replica, int parameter) {
  const Tensor& own = parameters_.on(replica, parameter);
  if (!own.requires_grad()) return;
  // The variable itself keeps its accumulator only weakly.
  std::shared_ptr<torch::autograd::Node> accumulator = torch::autograd::impl::grad_accumulator(own);
  using torch::autograd::variable_list;
  const std::uintptr_t key =
      accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [this, replica, parameter](const variable_list& outputs, const variable_list&) {
            arrived(replica, parameter);
            return outputs;
          }));
  hooks_.push_back({std::move(accumulator), key});
}

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
  Copy& own = *copies_[static_cast<std::size_t>(replica)];
  char& seen = own.arrived[static_cast<std::size_t>(parameter)];
  if (own.accumulating > 0) {
    // Not counted: a later pass, or the step, finds the gradient where it is.
    return;
  }
  if (!parameters_.on(replica, parameter).grad().defined()) return;  // a function gave none
  if (seen != 0) {
    wrong_use(fmt::format(
        "a second backward pass before apply(): the gradient of {} has arrived already and may be "
        "on its way. Step after each pass, or let passes add up inside of `auto scope = "
        "optimizer.accumulate();`. After an exception in a step call reset() first",
        parameters_.variables[static_cast<std::size_t>(parameter)].name()));
  }
  check_shape(replica, parameter);
  seen = 1;
  own.order.push_back(parameter);
  look_at_own(replica, parameter, parameters_.on(replica, parameter).grad());
  exchange_->arrived(replica, parameter);
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
  Copy& own = *copies_[static_cast<std::size_t>(replica)];
  if (!own.order.empty()) {
    wrong_use(
        "accumulate() after a backward pass outside of it: its gradients may be on their way; "
        "begin the scope before the first pass of a step");
  }
  ++own.accumulating;
}

void OptimizerCore::end_accumulation(int replica) noexcept {
  --copies_[static_cast<std::size_t>(replica)]->accumulating;
}

void OptimizerCore::check_complete(int replica) const {
  const Copy& own = *copies_[static_cast<std::size_t>(replica)];
  if (own.accumulating > 0) {
    wrong_use("apply() inside of an accumulation: end its scope first");
  }
  std::string missing;
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
      any = true;
    } else if (missing.empty()) {
      missing = variable.name();
    }
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
  gathered.order = copies_.front()->order;
  if (options_.non_finite == NonFinite::error) on_copies([&](int c) { look_at_rest(c); });
  exchange_->finish(gathered);
  forget_arrivals();
}

void OptimizerCore::forget_arrivals() {
  for (const auto& copy : copies_) {
    std::fill(copy->arrived.begin(), copy->arrived.end(), 0);
    copy->order.clear();
  }
}

void OptimizerCore::bind_gradients() {
  on_copies([&](int c) { exchange_->bind(c); });
}

// Of the sums, which all replicas share: scaled once.
void OptimizerCore::clip(double limit) {
  if (!(limit > 0)) {
    throw InvalidUsage(fmt::format("clip_global_norm is {}; it must be positive", limit));
  }
  const at::NoGradGuard not_recorded;
  double squares = 0;
  for (int p = 0; p < parameters_.count(); ++p) {
    const Tensor gradient = parameters_.on(0, p).grad();
    if (!gradient.defined()) continue;
    const Tensor values = gradient.is_sparse() ? gradient.coalesce()._values() : gradient;
    const double norm = values.norm().item<double>();
    squares += norm * norm;
  }
  const double norm = std::sqrt(squares);
  if (norm <= limit || !std::isfinite(norm)) return;
  std::set<const void*> scaled;
  for (int c = 0; c < copies(); ++c) {
    for (int p = 0; p < parameters_.count(); ++p) {
      Tensor gradient = parameters_.on(c, p).grad();
      if (!gradient.defined()) continue;
      Tensor values = gradient.is_sparse() ? gradient._values() : gradient;
      if (scaled.insert(values.data_ptr()).second) values.mul_(limit / norm);
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
  return std::make_shared<OptimizerCore>(strategy, std::move(groups), type_, make_, options_);
}

void OptimizerCore::step(const ApplyOptions& options) {
  const bool looked_at =
      observer_ || options.clip_global_norm || options_.non_finite != NonFinite::allow;
  if (!looked_at) {
    take_step(Bound::no);
    return;
  }
  bind_gradients();
  if (look_at_sums(options) == Look::step) take_step(Bound::yes);
}

OptimizerCore::Look OptimizerCore::look_at_sums(const ApplyOptions& options) {
  if (observer_) observer_(parameters_);
  require_finite(When::before_step);
  if (options_.non_finite == NonFinite::skip && first_non_finite() >= 0) {
    clear_gradients();
    ++skipped_;
    return Look::skip;
  }
  if (options.clip_global_norm) clip(*options.clip_global_norm);
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
  const Copy& own = *copies_[static_cast<std::size_t>(replica)];
  for (int p = 0; p < parameters_.count(); ++p) {
    const Tensor& gradient = parameters_.on(replica, p).grad();
    const bool arrived = own.arrived[static_cast<std::size_t>(p)] != 0;
    if (arrived) continue;
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
  on_copies([&](int c) {
    if (bound == Bound::no) exchange_->bind(c);
    if (!train::step_in_one_pass(optimizer(c))) optimizer(c).step();
    clear_gradients(c);
  });
  exchange_->release();
  count_step();
}

void OptimizerCore::count_step() {
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
  if (look_at_sums({}) == Look::step) take_step(Bound::yes);
}

std::string OptimizerCore::explain() const {
  if (is_copy_per_replica()) return exchange_->explain();
  return fmt::format("gradients: given by hand; {} copies for {} replicas\n", copies(),
                     strategy_->replicas());
}

}  // namespace lockstep::detail
