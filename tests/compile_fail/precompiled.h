// What the programs here include, precompiled once for each compiler.
#pragma once

#include "lockstep/tensor.h"

// clang-format off
#include <ATen/ops/relu.h>  // after tensor.h, which clang needs first
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
// clang-format on

#include <vector>

#include "lockstep/distributed_dataset.h"
#include "lockstep/distribution_strategy.h"
#include "lockstep/mirrored_strategy.h"
#include "lockstep/operators.h"
#include "lockstep/optimizer.h"
#include "lockstep/strategy.h"
