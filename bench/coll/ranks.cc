#include "bench/coll/ranks.h"

#include <algorithm>
#include <chrono>

#include "bench/support/paired.h"

namespace lockstep::bench {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Ranks::Ranks(int ranks) : size_(ranks), ranks_(static_cast<std::size_t>(ranks)) {
  host_ = std::jthread(
      [this] { coll::run_ranks(size_, [this](coll::Session& group) { serve(group); }); });
}

Ranks::~Ranks() {
  over_.store(true);
  round_.fetch_add(1);
  round_.notify_all();
}

void Ranks::serve(coll::Session& group) {
  Rank& mine = ranks_[static_cast<std::size_t>(group.rank())];
  pin_one_of(size_, group.rank());
  for (std::uint32_t seen = 0;; ++seen) {
    round_.wait(seen);
    if (over_.load()) return;
    (*prepare_)(group);
    group.barrier();
    mine.start_ns = now_ns();
    (*timed_)(group);
    mine.end_ns = now_ns();
    done_.fetch_add(1);
    done_.notify_all();
  }
}

double Ranks::time(const Task& prepare, const Task& timed) {
  prepare_ = &prepare;
  timed_ = &timed;
  done_.store(0);
  round_.fetch_add(1);
  round_.notify_all();
  const auto all = static_cast<std::uint32_t>(size_);
  for (std::uint32_t done = done_.load(); done < all; done = done_.load()) done_.wait(done);
  std::int64_t start = ranks_[0].start_ns;
  std::int64_t end = ranks_[0].end_ns;
  for (const Rank& rank : ranks_) {
    start = std::min(start, rank.start_ns);
    end = std::max(end, rank.end_ns);
  }
  return static_cast<double>(end - start) * 1e-9;
}

}  // namespace lockstep::bench
