#include "train/written_gradients.h"

#include "base/log.h"

namespace lockstep::train {

WrittenGradients::WrittenGradients(const detail::StrategyCore& strategy,
                                   const Parameters& parameters)
    : strategy_(strategy),
      parameters_(parameters),
      samples_(parameters.tensors.size(),
               std::vector<GradientSample>(parameters.variables.size())) {}

bool WrittenGradients::is_over() const noexcept {
  return strategy_.replicas_in_sync() == 1 || warned_.load();
}

void WrittenGradients::take_sample(int replica, int parameter) {
  if (is_over()) {
    drop_sample(replica, parameter);
    return;
  }
  samples_[static_cast<std::size_t>(replica)][static_cast<std::size_t>(parameter)] =
      GradientSample(parameters_.on(replica, parameter).grad());
}

void WrittenGradients::drop_sample(int replica, int parameter) {
  samples_[static_cast<std::size_t>(replica)][static_cast<std::size_t>(parameter)] = {};
}

void WrittenGradients::warn_of_writes(int replica, const std::vector<int>& arrived,
                                      const std::string& optimizer) {
  if (is_over()) return;
  for (const int p : arrived) {
    const GradientSample& sample =
        samples_[static_cast<std::size_t>(replica)][static_cast<std::size_t>(p)];
    if (!sample.was_written(parameters_.on(replica, p).grad())) continue;
    if (warned_.exchange(true)) return;
    log_warning(
        "{}: something was written to .grad of {} between backward and apply(), on replica {}: "
        "what each replica has there is summed. clip_grad_norm_ clips one replica's gradients "
        "then, not their sum; to clip the sum say apply(replica, {{.clip_grad_norm = ...}})",
        optimizer, parameters_.name(p), strategy_.first_replica() + replica);
    return;
  }
}

}  // namespace lockstep::train
