#include "launch/restart_policy.h"

#include <gtest/gtest.h>

namespace lockstep::tool {
namespace {

using namespace std::chrono_literals;
using How = sys::ExitStatus::How;

TEST(RestartPolicy, WaitsDoubleUpToHalfAMinute) {
  RestartPolicy policy(8);
  for (const auto wait : {1s, 2s, 4s, 8s, 16s, 30s, 30s, 30s}) {
    EXPECT_EQ(policy.next(Time()), wait);
  }
  EXPECT_EQ(policy.next(Time()), std::nullopt);
}

TEST(RestartPolicy, OldRestartsNoLongerCount) {
  RestartPolicy policy(2);
  const Time start = Time() + 1h;
  EXPECT_EQ(policy.next(start), 1s);
  EXPECT_EQ(policy.next(start + 5min), 2s);
  EXPECT_EQ(policy.next(start + 9min), std::nullopt);
  EXPECT_EQ(policy.next(start + 10min), 2s) << "the first is forgotten";
  EXPECT_EQ(policy.next(start + 14min), std::nullopt);
  EXPECT_EQ(policy.next(start + 60min), 1s);
}

TEST(RestartPolicy, NoneMeansNone) { EXPECT_EQ(RestartPolicy(0).next(Time()), std::nullopt); }

TEST(RestartPolicy, WhatCannotGetBetterIsNotRestarted) {
  for (const int code : {2, 78, 126, 127}) EXPECT_FALSE(worth_a_restart({How::exited, code}));
  for (const int code : {1, 3, 75}) EXPECT_TRUE(worth_a_restart({How::exited, code}));
  EXPECT_TRUE(worth_a_restart({How::signalled, 2})) << "a signal's number is no exit code";
  EXPECT_TRUE(worth_a_restart({How::unknown, 0}));
}

}  // namespace
}  // namespace lockstep::tool
