#include "train/written_gradients.h"

#include <fmt/format.h>

#include "base/log.h"
#include "lockstep/error.h"

namespace lockstep::train {

WrittenGradients::WrittenGradients(const detail::StrategyCore& strategy,
                                   const Parameters& parameters)
    : strategy_(strategy),
      parameters_(parameters),
      samples_(parameters.tensors.size(),
               std::vector<GradientSample>(parameters.variables.size())) {}

bool WrittenGradients::is_quiet(Sent sent) const noexcept {
  return sent == Sent::after_backward && (strategy_.replicas_in_sync() == 1 || warned_.load());
}

void WrittenGradients::take_sample(int replica, int parameter, Sent sent) {
  sample(replica, parameter) =
      is_quiet(sent) ? GradientSample() : GradientSample(parameters_.on(replica, parameter).grad());
}

void WrittenGradients::check(int replica, const std::vector<int>& arrived, Sent sent,
                             const std::string& optimizer) {
  if (is_quiet(sent)) return;
  for (const int p : arrived) {
    if (sent == Sent::during_backward) {
      refuse_change(replica, p);
    } else {
      warn_of_write(replica, p, optimizer);
    }
  }
}

void WrittenGradients::refuse_change(int replica, int parameter) {
  const Tensor& gradient = parameters_.on(replica, parameter).grad();
  const GradientSample& before = sample(replica, parameter);
  const bool replaced = before.was_replaced(gradient);
  if (!replaced && !before.was_written(gradient) && !before.has_another_version(gradient)) return;
  throw InvalidUsage(fmt::format(
      "apply: {} .grad of {} after backward, when it may have been sent already. To clip the sum "
      "say apply(replica, {{.clip_global_norm = ...}}) or .clip_grad_norm; change gradients while "
      "they are computed (register_hook), or say GradientOptions{{.overlap = Overlap::never}}",
      replaced ? "another tensor was put into" : "something was written to",
      parameters_.name(parameter)));
}

void WrittenGradients::warn_of_write(int replica, int parameter, const std::string& optimizer) {
  if (!sample(replica, parameter).was_written(parameters_.on(replica, parameter).grad())) return;
  if (warned_.exchange(true)) return;
  log_warning(
      "{}: something was written to .grad of {} between backward and apply(), on replica {}: "
      "what each replica has there is summed. clip_grad_norm_ clips one replica's gradients "
      "then, not their sum; to clip the sum say apply(replica, {{.clip_grad_norm = ...}})",
      optimizer, parameters_.name(parameter), strategy_.first_replica() + replica);
}

}  // namespace lockstep::train
