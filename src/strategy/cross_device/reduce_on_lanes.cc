#include "strategy/cross_device/reduce_on_lanes.h"

#include <atomic>

namespace lockstep::detail {

void reduce_on_lanes(StrategyCore& core, const std::vector<tensor::ReduceJob>& jobs) {
  if (jobs.empty()) return;
  const tensor::BatchReduce batch(jobs);
  // More pieces than lanes, taken by whoever is free: a lane that gets its core late, or a slower
  // one, holds nobody up.
  constexpr int kPiecesPerLane = 8;
  const int pieces = batch.pieces(kPiecesPerLane * core.replicas());
  if (pieces == 1 || core.replicas() == 1) {
    batch.run();
    return;
  }
  std::atomic<int> next = 0;
  core.on_lanes([&](int) {
    for (int piece = next++; piece < pieces; piece = next++) batch.run_piece(piece, pieces);
  });
}

tensor::Combine combine_of(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::mean:
      return tensor::Combine::mean;
    case ReduceOp::max:
      return tensor::Combine::max;
    case ReduceOp::min:
      return tensor::Combine::min;
    case ReduceOp::sum:
      break;
  }
  return tensor::Combine::sum;
}

}  // namespace lockstep::detail
