// What every test of a fault asserts: all survivors give the same verdict in time, nobody hangs,
// and closing a session does not block.
#pragma once

#include <gtest/gtest.h>

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

/// The last survivor threw no later than this after the fault.
inline void expect_in_time(const std::vector<Outcome>& outcomes, const std::vector<int>& victims,
                           std::int64_t fault_us, std::chrono::milliseconds bound) {
  for (int rank = 0; rank < static_cast<int>(outcomes.size()); ++rank) {
    if (is_in(rank, victims)) continue;
    const auto verdict = verdict_in(outcomes[static_cast<std::size_t>(rank)].text);
    if (!verdict) continue;
    EXPECT_LE(verdict->at_us - fault_us, std::chrono::microseconds(bound + kSlack).count())
        << "rank " << rank;
  }
}

}  // namespace lockstep::processes
