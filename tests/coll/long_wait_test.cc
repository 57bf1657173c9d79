#include "coll/long_wait.h"

#include <gmock/gmock.h>

#include <chrono>

namespace lockstep::coll {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr Time kStart = Time{} + std::chrono::hours(1);
constexpr std::uint64_t kMiB = 1 << 20;

SessionOptions options(Duration progress_timeout, Duration stall_report) {
  return {.progress_timeout = progress_timeout, .stall_report = stall_report};
}

TEST(LongWait, IsStuckWhenNothingMovedForTheTimeout) {
  LongWait wait(options(300s, 10s), kStart, 7);
  EXPECT_EQ(wait.next_look().time(), kStart + 1s);
  wait.look(kStart + 200s, {.progress = 8});
  EXPECT_FALSE(wait.is_stuck(kStart + 499s));
  wait.look(kStart + 499s, {.progress = 8});
  EXPECT_EQ(wait.waited(kStart + 499s), 499s);
  EXPECT_EQ(wait.next_look().time(), kStart + 10s) << "a report is due";
  (void)wait.report(kStart + 499s);
  EXPECT_EQ(wait.next_look().time(), kStart + 500s) << "the timeout, before the next look";
  EXPECT_TRUE(wait.is_stuck(kStart + 500s));
}

TEST(LongWait, WhatWasDoneBeforeItBeganIsNoProgress) {
  LongWait wait(options(1s, 10s), kStart, 7);
  wait.look(kStart + 900ms, {.progress = 7});
  EXPECT_TRUE(wait.is_stuck(kStart + 1s));
}

TEST(LongWait, NeverIsNever) {
  const LongWait wait(options(Duration::max(), Duration::max()), kStart, 0);
  EXPECT_FALSE(wait.report_is_due(kStart + 1000s));
  EXPECT_FALSE(wait.is_stuck(kStart + 1000s));
}

TEST(LongWait, TheRateCountsFromTheLastReport) {
  LongWait wait(options(300s, 10s), kStart, 0);
  const auto look = [&](Duration at, std::uint64_t done) {
    wait.look(kStart + at, {.progress = done, .moved = {done, 100 * kMiB}, .awaited = {1}});
  };
  look(1s, 4 * kMiB);  // what the buffers took
  look(10s, 4 * kMiB + 9 * kMiB / 2);
  EXPECT_TRUE(wait.report_is_due(kStart + 10s));
  EXPECT_EQ(wait.report(kStart + 10s),
            "rank 1 (100 % of the wait); 8.5 of 100.0 MiB moved, 512.0 KiB/s, about 183 s to go");
  EXPECT_FALSE(wait.report_is_due(kStart + 19s));
  look(20s, 60 * kMiB);
  EXPECT_EQ(wait.report(kStart + 20s),
            "rank 1 (100 % of the wait); 60.0 of 100.0 MiB moved, 5.2 MiB/s, about 8 s to go");
  look(30s, 60 * kMiB);
  EXPECT_EQ(wait.report(kStart + 30s),
            "rank 1 (100 % of the wait); 60.0 of 100.0 MiB moved, now nothing moves");
  look(40s, 60 * kMiB + 10240);
  EXPECT_EQ(wait.report(kStart + 40s),
            "rank 1 (100 % of the wait); 60.0 of 100.0 MiB moved, 1.0 KiB/s, about 11 h to go");
}

TEST(LongWait, A16TheShareOfTheWaitIsThatOfThoseWhoAreNamed) {
  LongWait wait(options(300s, 10s), kStart, 0);
  for (int i = 1; i <= 10; ++i) {
    wait.look(kStart + i * 1s, {.awaited = i <= 3 ? std::vector{2, 5} : std::vector{1}});
  }
  EXPECT_EQ(wait.report(kStart + 10s), "rank 1 (70 % of the wait)");
  for (int i = 11; i <= 20; ++i) wait.look(kStart + i * 1s, {.awaited = {2, 5}});
  EXPECT_EQ(wait.report(kStart + 20s), "rank 2, 5 (65 % of the wait)");
  wait.look(kStart + 30s, {});
  EXPECT_EQ(wait.report(kStart + 30s), "other ranks");
}

// The process itself was stopped: nothing can be said about a rate.
TEST(LongWait, AReportAtTheFirstLook) {
  LongWait wait(options(300s, 10s), kStart, 0);
  wait.look(kStart + 60s, {.moved = {3, 100}, .awaited = {1}});
  EXPECT_EQ(wait.report(kStart + 60s), "rank 1 (100 % of the wait); 3 of 100 bytes moved");
}

}  // namespace
}  // namespace lockstep::coll
