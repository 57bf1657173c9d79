#include "train/gradient_norm.h"

#include <ATen/ops/norm.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <cmath>
#include <set>

#include "lockstep/error.h"

namespace lockstep::train {

double norm_of_sums(detail::StrategyCore& strategy, const Parameters& parameters) {
  const int lanes = strategy.replicas();
  std::vector<double> norms(parameters.variables.size(), 0);
  strategy.on_lanes([&](int lane) {
    const at::NoGradGuard not_recorded;
    for (int p = lane; p < parameters.count(); p += lanes) {
      const Tensor& gradient = parameters.on(0, p).grad();
      if (!gradient.defined()) continue;
      const Tensor values = gradient.is_sparse() ? gradient.coalesce()._values() : gradient;
      norms[static_cast<std::size_t>(p)] = values.norm().item<double>();
    }
  });
  double squares = 0;  // in the order of parameters, whichever lane computed the norm
  for (const double norm : norms) squares += norm * norm;
  return std::sqrt(squares);
}

void clip_sums(const Parameters& parameters, const ApplyOptions& options, double norm) {
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
  if (!std::isfinite(norm)) return;
  const double scale = as_torch ? limit / (norm + 1e-6) : limit / norm;
  if (!(scale < 1)) return;
  std::set<const void*> scaled;  // the copies may share the memory of a sum
  for (const std::vector<Tensor>& copy : parameters.tensors) {
    for (const Tensor& parameter : copy) {
      Tensor gradient = parameter.grad();
      if (!gradient.defined()) continue;
      Tensor values = gradient.is_sparse() ? gradient._values() : gradient;
      if (scaled.insert(values.data_ptr()).second) values.mul_(scale);
    }
  }
}

}  // namespace lockstep::train
