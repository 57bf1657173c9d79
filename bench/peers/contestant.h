// Contestant: one rank of a library that can all-reduce, as the measuring loop sees it.
//
//   class Mine : public Contestant { ... };
//   int main(int argc, char** argv) {
//     return rank_main(argc, argv, [](const RankOptions& options) {
//       return std::make_unique<Mine>(options);
//     });
//   }
//
// One thread uses it. Every rank of a contestant gets the same orders.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "bench/peers/order.h"

namespace lockstep::bench::peers {

/// A job made ready: its memory, and the call that reduces it.
class Call {
 public:
  virtual ~Call() = default;
  /// What is rewritten before the call and holds the sums after it.
  [[nodiscard]] virtual std::span<float> memory() = 0;
  virtual void run() = 0;
  /// False for a stream that only moves the bytes: its memory holds no sums.
  [[nodiscard]] virtual bool adds_up() const { return true; }
};

class Contestant {
 public:
  virtual ~Contestant() = default;
  /// Everything that a user would do once.
  [[nodiscard]] virtual std::unique_ptr<Call> prepare(const Job& job) = 0;
  /// Returns when all ranks have called it, with nothing of earlier calls left to do.
  virtual void barrier() = 0;
};

/// How many floats each piece of a job has; the pieces lie one after another.
std::vector<std::size_t> pieces_of(const Job& job);

/// Private memory, page by page, and the pieces of a job in it.
class CallerMemory {
 public:
  explicit CallerMemory(const Job& job);
  [[nodiscard]] std::span<float> all() const { return {memory_.get(), count_}; }
  [[nodiscard]] const std::vector<std::span<float>>& pieces() const { return pieces_; }

 private:
  struct Free {
    void operator()(float* memory) const;
  };
  std::size_t count_ = 0;
  std::unique_ptr<float, Free> memory_;
  std::vector<std::span<float>> pieces_;
};

/// The pieces of a job in memory of somebody else's.
std::vector<std::span<float>> cut(const Job& job, std::span<float> memory);

}  // namespace lockstep::bench::peers
