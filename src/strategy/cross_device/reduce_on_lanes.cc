#include "strategy/cross_device/reduce_on_lanes.h"

namespace lockstep::detail {

void reduce_on_lanes(StrategyCore& core, const std::vector<tensor::ReduceJob>& jobs) {
  if (jobs.empty()) return;
  const tensor::BatchReduce batch(jobs);
  const int pieces = batch.pieces(core.replicas());
  if (pieces == 1) {
    batch.run();
    return;
  }
  core.on_lanes([&](int lane) {
    if (lane < pieces) batch.run_piece(lane, pieces);
  });
}

tensor::Combine combine_of(ReduceOp op) noexcept {
  return op == ReduceOp::mean ? tensor::Combine::mean : tensor::Combine::sum;
}

}  // namespace lockstep::detail
