// Forward and backward of one batch normalisation layer on 64 images of 32 x 28 x 28: two replicas
// with SyncBatchNorm, and two threads with torch's, which exchange nothing. Each has half the rows.
#pragma once

#include "bench/strategy/training_step.h"

namespace lockstep::bench {

std::unique_ptr<Trainer> synchronized_batch_norm();
std::unique_ptr<Trainer> unconnected_batch_norm();

}  // namespace lockstep::bench
