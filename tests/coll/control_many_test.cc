// What many ranks cost: pulses of rank 0, and telling everybody who has left.
#include <gmock/gmock.h>

#include "tests/coll/controls.h"

namespace lockstep::coll {
namespace {

using simulated::host;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;

constexpr int kRanks = 256;

/// Counts what is written to a connection.
class Counting final : public sys::Connection {
 public:
  struct Count {
    int writes = 0;
    std::size_t bytes = 0;
  };
  Counting(std::unique_ptr<sys::Connection> inner, Count& count)
      : inner_(std::move(inner)), count_(count) {}
  sys::Transfer read(std::span<std::byte> into) noexcept override { return inner_->read(into); }
  sys::Transfer write(std::span<const std::byte> from) noexcept override {
    const sys::Transfer moved = inner_->write(from);
    count_.writes += moved.bytes > 0 ? 1 : 0;
    count_.bytes += moved.bytes;
    return moved;
  }
  void shutdown_write() noexcept override { inner_->shutdown_write(); }
  [[nodiscard]] Status error() const override { return inner_->error(); }
  [[nodiscard]] std::string peer() const override { return inner_->peer(); }
  [[nodiscard]] sys::Connection& underlying() noexcept override { return inner_->underlying(); }

 private:
  std::unique_ptr<sys::Connection> inner_;
  Count& count_;
};

class ManyRanks : public Controls {
 protected:
  ManyRanks() {
    wrap_ = [this](int rank, std::unique_ptr<sys::Connection> connection) {
      return std::make_unique<Counting>(std::move(connection), count_[rank == 0 ? 0 : 1]);
    };
    step_ = 5ms;
    start(kRanks);
    run(1s);
  }
  /// Since they were asked for last.
  Counting::Count written_by_rank_0() { return std::exchange(count_[0], {}); }
  Counting::Count written_by_others() { return std::exchange(count_[1], {}); }

 private:
  Counting::Count count_[2];
};

TEST_F(ManyRanks, RankZeroExchangesFewPulses) {
  written_by_rank_0();
  written_by_others();
  run(4s);
  EXPECT_LE(written_by_rank_0().writes, 4 * 10 * kRanks / 3);
  EXPECT_GE(written_by_others().writes, 4 * 9 * 2 * (kRanks - 1)) << "to their neighbours";
  expect_no_failure();
  EXPECT_TRUE(warnings_.empty()) << warnings_.front();
}

TEST_F(ManyRanks, ASilentRankZeroIsNoticedAsSoonAsAnyOther) {
  for (const int silent : {0, 100}) {
    if (silent != 0) start(kRanks);
    run(1s);
    const Time since = world_->now();
    network_->silence_all(host(silent));
    run(2850ms);
    expect_no_failure();
    run(400ms);
    for (int r = 0; r < kRanks; ++r) {
      if (r == silent) continue;
      EXPECT_THAT(rank(r).failure.cause().culprits(), ElementsAre(silent)) << r;
    }
    EXPECT_LE(longest_since(since, {silent}), 3s + kTprop + 2 * step_);
  }
}

// Each rank is told of each other, but not one by one.
TEST_F(ManyRanks, LeavingTogetherTakesFewFrames) {
  written_by_rank_0();
  written_by_others();
  for (int r = 0; r < kRanks; ++r) {
    rank(r).control->leave_group(0, 9);
    rank(r).control->goodbye(9);
    if (r % 16 == 0) run(5ms);
  }
  run(200ms);
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_TRUE(rank(r).control->may_leave()) << r;
    EXPECT_EQ(rank(r).control->left(kRanks / 2), 9U) << r;
    EXPECT_TRUE(rank(r).control->has_left(7, 0)) << r;
  }
  expect_no_failure();
  const auto by_rank_0 = written_by_rank_0();
  const auto by_others = written_by_others();
  EXPECT_LE(by_rank_0.writes, 16 * kRanks);
  EXPECT_LE(by_rank_0.bytes, 2'000'000U);
  EXPECT_LE(by_others.writes, 16 * 3 * kRanks);
  EXPECT_LE(by_others.bytes, 6'000'000U);
}

}  // namespace
}  // namespace lockstep::coll
