// What scales a step, besides the gradients: the same on all workers, or their copies differ from
// then on without anybody noticing.
//
// It travels as a part of the name of a collective that the step makes anyway, so workers that have
// another one get a Mismatch in that collective. It costs no message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/optimizer.h"

namespace lockstep::train {

/// "clip_global_norm 1, batch 16, lr 0.1". Numbers have as many digits as tell them from all
/// others.
std::string describe_scale(const torch::optim::Optimizer& optimizer, const ApplyOptions& options,
                           std::optional<std::int64_t> global_batch_size);

}  // namespace lockstep::train
