// Many reductions at once: all lanes of the strategy take pieces of the bytes.
#pragma once

#include <vector>

#include "strategy/core.h"
#include "tensor/reduce.h"

namespace lockstep::detail {

void reduce_on_lanes(StrategyCore& core, const std::vector<tensor::ReduceJob>& jobs);

tensor::Combine combine_of(ReduceOp op) noexcept;

}  // namespace lockstep::detail
