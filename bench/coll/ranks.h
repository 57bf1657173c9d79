// Ranks: a group of ranks as threads that do what the measuring thread tells them.
//
//   Ranks ranks(2);
//   double wall = ranks.time([](coll::Session& group) { prepare(); },
//                            [](coll::Session& group) { group.all_reduce(...); });
//
// One thread measures; the ranks sleep between tasks, so that they take nothing from what is
// measured beside them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/coll.h"

namespace lockstep::bench {

class Ranks {
 public:
  using Task = std::function<void(coll::Session&)>;

  explicit Ranks(int ranks);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  [[nodiscard]] int size() const noexcept { return size_; }

  /// Runs both on every rank, a barrier between them. Seconds from the first rank past the barrier
  /// to the last rank's end of `timed`.
  double time(const Task& prepare, const Task& timed);

 private:
  struct Rank {
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
  };
  void serve(coll::Session& group);

  int size_;
  const Task* prepare_ = nullptr;
  const Task* timed_ = nullptr;
  std::vector<Rank> ranks_;
  std::atomic<std::uint32_t> round_ = 0;
  std::atomic<std::uint32_t> done_ = 0;
  std::atomic<bool> over_ = false;
  std::jthread host_;
};

}  // namespace lockstep::bench
