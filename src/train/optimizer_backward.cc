// The part of OptimizerCore that runs on the replica's own thread: gradients that arrive during
// backward, accumulation, and the checks before apply().
#include <fmt/format.h>

#include "train/optimizer_core.h"

namespace lockstep::detail {

namespace {

[[noreturn]] void wrong_use(const std::string& message) {
  throw InvalidUsage(message, Code::failed_precondition);
}

}  // namespace

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

void OptimizerCore::restore_hooks(int replica) {
  if (hooks_) hooks_->restore(replica);
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
  finite_.record(replica, parameter, parameters_.on(replica, parameter).grad());
  // The gradient of a shared parameter belongs to the optimizer that steps first.
  if (!sharing_->shares_any()) exchange_->arrived(replica, parameter);
  written_.take_sample(replica, parameter, when_sent());
}

train::WrittenGradients::Sent OptimizerCore::when_sent() const {
  return sharing_->sends_during_backward() ? train::WrittenGradients::Sent::during_backward
                                           : train::WrittenGradients::Sent::after_backward;
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
  written_.check(replica, arrivals(replica).order(), when_sent(), sharing_->description());
}

}  // namespace lockstep::detail
