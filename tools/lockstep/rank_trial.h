// RankTrial: one rank's side of a trial: its buffers, the call, and the check of its result.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "bench_memory.h"
#include "lockstep/coll/session.h"
#include "pattern.h"
#include "trial.h"

namespace lockstep::tool {

class RankTrial {
 public:
  using Clock = std::chrono::steady_clock;
  struct Span {
    Clock::time_point start;
    Clock::time_point end;
  };

  /// Both must outlive it.
  RankTrial(const Trial& trial, coll::Session& group);

  /// Writes the buffers, meets the others, calls and checks; the times are those of the call.
  Span iterate(std::uint64_t phase);

  /// Elements, over all iterations.
  [[nodiscard]] std::uint64_t wrong() const { return wrong_; }

 private:
  [[nodiscard]] bool in_place() const { return trial_.placement == Placement::in_place; }
  [[nodiscard]] bool at_root() const { return rank_ == trial_.root; }
  [[nodiscard]] const BenchMemory& result() const { return in_place() ? input_ : output_; }
  [[nodiscard]] int next() const { return (rank_ + 1) % trial_.ranks; }
  [[nodiscard]] int previous() const { return (rank_ + trial_.ranks - 1) % trial_.ranks; }
  [[nodiscard]] const Pattern& from(int rank) const {
    return inputs_[static_cast<std::size_t>(rank)];
  }

  void call();
  /// Elements of this rank's result that differ from what they must be.
  [[nodiscard]] std::uint64_t count_wrong(std::uint64_t phase) const;

  const Trial& trial_;
  coll::Session& group_;
  int rank_;
  BenchMemory input_;
  BenchMemory output_;
  coll::CallOptions options_;
  std::vector<Pattern> inputs_;  // of each rank
  std::optional<Pattern> result_;
  std::uint64_t wrong_ = 0;
};

}  // namespace lockstep::tool
