#include "launch/failure_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace lockstep::tool {
namespace {

using namespace std::chrono_literals;
using How = sys::ExitStatus::How;
using testing::ElementsAre;

TEST(FailureReport, TheFirstCauseComesFirst) {
  const AttemptResult result{
      .failures = {{.rank = 2,
                    .pid = 4711,
                    .status = {How::signalled, SIGSEGV, true},
                    .ran = 3210ms,
                    .last_lines = {"one", "two"}},
                   {.rank = 0, .pid = 1, .status = {How::exited, 1}},
                   {.rank = 1, .pid = 2, .status = {How::signalled, SIGTERM}, .by_launcher = true}},
      .failed_before_stop = true};
  EXPECT_THAT(
      failure_report(result),
      ElementsAre(
          "first cause: rank 2 (pid 4711) killed by signal 11 (SEGV), core dumped after 3.2 s",
          "the last lines rank 2 wrote to standard error:", "  | one", "  | two",
          "then rank 0 exited with 1",
          "ended by the launcher: rank 1 (killed by signal 15 (TERM))"));
}

TEST(FailureReport, WhatIsStillToBeSeenIsNotRepeated) {
  const AttemptResult result{.failures = {{.rank = 1,
                                           .pid = 7,
                                           .status = {How::exited, 1},
                                           .ran = 1s,
                                           .last_lines = {"why"},
                                           .just_shown = true}},
                             .failed_before_stop = true};
  EXPECT_THAT(failure_report(result),
              ElementsAre("first cause: rank 1 (pid 7) exited with 1 after 1.0 s; what it wrote "
                          "stands above"));
}

TEST(FailureReport, WhoBlamesNobodyElseIsTheFirstCause) {
  const auto order = [](std::vector<RankFailure> failures) {
    AttemptResult result{.failures = std::move(failures), .failed_before_stop = true};
    put_cause_first(result);
    std::vector<int> ranks;
    for (const RankFailure& failure : result.failures) ranks.push_back(failure.rank);
    return ranks;
  };
  const RankFailure victim{.rank = 0, .status = {How::exited, 1}, .blames = {2}};
  const RankFailure other{.rank = 1, .status = {How::exited, 1}, .blames = {2}};
  const RankFailure cause{.rank = 2, .status = {How::exited, 1}};
  RankFailure ended = cause;
  ended.by_launcher = true;
  EXPECT_THAT(order({victim, other, cause}), ElementsAre(2, 0, 1));
  EXPECT_THAT(order({cause, victim, other}), ElementsAre(2, 0, 1));
  EXPECT_THAT(order({victim, ended}), ElementsAre(2, 0)) << "it did not end by itself";
  EXPECT_THAT(order({victim, other}), ElementsAre(0, 1)) << "the cause is on another host";
  AttemptResult far{.failures = {victim}, .failed_before_stop = true};
  put_cause_first(far);
  EXPECT_THAT(failure_report(far).front(), testing::EndsWith("; it says that rank 2 is to blame"));
}

TEST(FailureReport, AKillIsExplained) {
  const RankFailure failure{.rank = 1,
                            .pid = 5,
                            .status = {How::signalled, SIGKILL},
                            .ran = 1s,
                            .explanation = "somebody sent it"};
  EXPECT_EQ(describe(failure),
            "rank 1 (pid 5) killed by signal 9 (KILL) after 1.0 s: somebody sent it");
}

TEST(FailureReport, AStopBlamesNobody) {
  const AttemptResult result{
      .failures = {{.rank = 0, .pid = 1, .status = {How::signalled, SIGINT}, .by_launcher = true}},
      .stopped_by = SIGINT};
  EXPECT_THAT(failure_report(result),
              ElementsAre("stopped by signal 2 (INT)",
                          "ended by the launcher: rank 0 (killed by signal 2 (INT))"));
}

TEST(FailureReport, AProgramThatCannotBeStartedIsToldOnce) {
  AttemptResult result{.failures = {{.rank = 1, .pid = 5, .status = {How::exited, 126}},
                                    {.rank = 0, .pid = 4, .status = {How::exited, 126}}},
                       .failed_before_stop = true,
                       .not_started = "cannot start it"};
  EXPECT_THAT(failure_report(result), ElementsAre("cannot start it"));
  result.failures.back().status = {How::exited, 3};
  EXPECT_THAT(
      failure_report(result),
      ElementsAre("cannot start it", "first cause: rank 1 (pid 5) exited with 126 after 0.0 s",
                  "then rank 0 exited with 3"));
}

}  // namespace
}  // namespace lockstep::tool
