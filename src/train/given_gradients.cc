#include "train/given_gradients.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/error.h"
#include "tensor/torch_text.h"

namespace lockstep::train {

namespace {

void check_given(const PerReplica<Tensor>& gradient, const Variable& variable) {
  for (int i = 0; i < gradient.size(); ++i) {
    const Tensor& own = gradient[i];
    if (own.defined() && own.sizes() != variable.shape()) {
      throw InvalidUsage(fmt::format("apply_gradients: the gradient of {} is {}, the variable {}",
                                     variable.name(), tensor::shape_text(own),
                                     tensor::shape_text(variable[0])));
    }
  }
}

}  // namespace

KeptGradients keep_defined(const GradientsAndVariables& pairs, const GradientOptions& options) {
  KeptGradients kept;
  for (const auto& [gradient, variable] : pairs) {
    if (gradient.defined()) {
      kept.gradients.push_back(gradient.detach());
      kept.variables.push_back(variable);
    } else if (!options.allow_unused) {
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

std::vector<int> parameter_numbers_of(const ReplicaGradientsAndVariables& pairs,
                                      const Parameters& parameters) {
  if (pairs.empty()) throw InvalidUsage("apply_gradients: No variables provided");
  std::vector<int> numbers;
  for (const auto& [gradient, variable] : pairs) {
    const int number = parameters.number_of(variable);
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
  return numbers;
}

}  // namespace lockstep::train
