// What every test of a fault asserts: all survivors give the same verdict in time, nobody hangs,
// and closing a session does not block.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tests/processes/cluster.h"
#include "tests/processes/verdict.h"

namespace lockstep::processes {

/// By a sanitizer: all is slower, by a factor that differs.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kInstrumented = true;
#else
constexpr bool kInstrumented = false;
#endif
/// Beyond what is promised, on a machine that does other things too.
constexpr auto kSlack = std::chrono::milliseconds(kInstrumented ? 1500 : 200);
/// No session may keep its owner longer.
constexpr std::int64_t kCloseMicros = 1'500'000;

inline bool is_in(int rank, const std::vector<int>& ranks) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

struct Expected {
  std::string kind;
  std::vector<int> culprits;
};

/// Survivors (all but `victims`) ended with code 3, this kind and these culprits.
inline void expect_verdicts(const std::vector<Outcome>& outcomes, const std::vector<int>& victims,
                            const Expected& expected) {
  for (int rank = 0; rank < static_cast<int>(outcomes.size()); ++rank) {
    if (is_in(rank, victims)) continue;
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    SCOPED_TRACE("rank " + std::to_string(rank) + " " + outcome.how() + " and said\n" +
                 outcome.text);
    EXPECT_TRUE(outcome.exited_with(3));
    const auto verdict = verdict_in(outcome.text);
    ASSERT_TRUE(verdict.has_value());
    EXPECT_EQ(verdict->kind, expected.kind);
    EXPECT_EQ(verdict->culprits, expected.culprits);
    const auto closed = number_after(outcome.text, "closed after ");
    ASSERT_TRUE(closed.has_value());
    EXPECT_LT(*closed, kCloseMicros);
  }
}

/// How long after the fault the last survivor threw.
inline std::int64_t longest_us(const std::vector<Outcome>& outcomes,
                               const std::vector<int>& victims, std::int64_t fault_us) {
  std::int64_t longest = 0;
  for (int rank = 0; rank < static_cast<int>(outcomes.size()); ++rank) {
    if (is_in(rank, victims)) continue;
    const auto verdict = verdict_in(outcomes[static_cast<std::size_t>(rank)].text);
    if (verdict) longest = std::max(longest, verdict->at_us - fault_us);
  }
  return longest;
}

/// The last survivor threw no later than this after the fault, in a run that cannot be repeated.
inline void expect_in_time(const std::vector<Outcome>& outcomes, const std::vector<int>& victims,
                           std::int64_t fault_us, std::chrono::milliseconds bound) {
  EXPECT_LE(longest_us(outcomes, victims, fault_us),
            std::chrono::microseconds(bound + kSlack).count());
}

/// What is promised holds without slack: `run` strikes and returns longest_us(). On a busy machine
/// some runs are late; not one in time out of so many is the library's fault.
inline void expect_promise(std::chrono::milliseconds bound,
                           const std::function<std::int64_t()>& run) {
  constexpr int kRuns = 6;
  // No run may be so late that something else than load must be the reason.
  const auto most = bound + std::chrono::seconds(kInstrumented ? 5 : 1);
  if (kInstrumented) bound += kSlack;
  std::string late;
  for (int i = 0; i < kRuns && !testing::Test::HasFailure(); ++i) {
    const std::int64_t took = run();
    EXPECT_LE(took, std::chrono::microseconds(most).count());
    if (took <= std::chrono::microseconds(bound).count()) return;
    late += " " + std::to_string(took);
  }
  ADD_FAILURE() << "microseconds until the last survivor threw, where " << bound.count()
                << " ms are promised:" << late;
}

}  // namespace lockstep::processes
