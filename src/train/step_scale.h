// What scales a step, besides the gradients: the same on all workers, or their copies differ from
// then on without anybody noticing.
//
// It travels as a part of the name of a collective that the step makes anyway, so workers that have
// another one get a Mismatch in that collective. It costs no message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/optimizer.h"
#include "train/optimizer_options.h"

namespace lockstep::train {

/// "clip_global_norm 1, batch 16, lr 0.1, momentum 0.8". Numbers have as many digits as tell
/// them from all others. Options other than the rate are there if they have changed since the
/// optimizer was made, when all of them were compared.
std::string describe_scale(const torch::optim::Optimizer& optimizer, const MadeOptions& made,
                           const ApplyOptions& options,
                           std::optional<std::int64_t> global_batch_size);

/// InvalidUsage if another copy of this process has other options than the first one: they are not
/// compared with the other workers'. `first_replica` is the number of copy 0, for the message.
void require_same_options(const std::vector<const torch::optim::Optimizer*>& copies,
                          int first_replica);

}  // namespace lockstep::train
