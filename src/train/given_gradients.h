// Checks of the gradients that a program computes itself and gives to apply_gradients() or
// distributed_apply(). Each function throws InvalidUsage.
#pragma once

#include <vector>

#include "lockstep/optimizer.h"
#include "train/parameters.h"

namespace lockstep::train {

/// The pairs of apply_gradients() that have a gradient.
struct KeptGradients {
  std::vector<Tensor> gradients;
  std::vector<Variable> variables;
};

/// On one replica. Rejects a variable without a gradient, unless options.allow_unused, and a list
/// without any gradient.
KeptGradients keep_defined(const GradientsAndVariables& pairs, const GradientOptions& options);

/// The parameter number of each pair's variable. Rejects a variable that is not the optimizer's or
/// is given twice, and a gradient that has another shape than its variable.
std::vector<int> parameter_numbers_of(const ReplicaGradientsAndVariables& pairs,
                                      const Parameters& parameters);

}  // namespace lockstep::train
