// Signals to `lockstep launch`, and restarts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "base/clock.h"
#include "tests/tools/launch/launched.h"

namespace lockstep::tool {
namespace {

using namespace std::chrono_literals;
using How = sys::ExitStatus::How;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr auto exited = [](int value) { return sys::ExitStatus{How::exited, value}; };

/// Waits until both of two ranks have said something.
void wait_for_both(Launched& launch, const std::string& text) {
  launch.wait_for("[0] " + text);
  launch.wait_for("[1] " + text);
}

TEST(LaunchSignals, ArePassedOnToEveryRank) {
  const std::pair<sys::Signal, const char*> cases[] = {{sys::Signal::hangup, "HUP"},
                                                       {sys::Signal::user1, "USR1"},
                                                       {sys::Signal::user2, "USR2"},
                                                       {sys::Signal::interrupt, "INT"},
                                                       {sys::Signal::terminate, "TERM"}};
  for (const auto& [signal, name] : cases) {
    const std::string script = std::string("trap 'echo got; exit 0' ") + name +
                               "; echo ready; while :; do sleep 0.05; done";
    Launched launch(ranks_of(2, script));
    wait_for_both(launch, "ready");
    launch.signal(signal);
    const Finished finished = launch.finish();
    EXPECT_EQ(finished.status, exited(0)) << name << finished.err;
    EXPECT_THAT(finished.out, AllOf(HasSubstr("[0] got"), HasSubstr("[1] got"))) << name;
  }
}

TEST(LaunchSignals, AnInterruptEndsRanksThatDoNotCatchIt) {
  Launched launch(ranks_of(2, "echo ready; exec sleep 600"));
  wait_for_both(launch, "ready");
  launch.signal(sys::Signal::interrupt);
  const Finished finished = launch.finish();
  EXPECT_EQ(finished.status, exited(128 + SIGINT));
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("stopped by signal 2 (INT)"), Not(HasSubstr("first cause"))));
}

TEST(LaunchSignals, ASecondOneKills) {
  Launched launch(ranks_of(2, "trap 'echo no' TERM INT; echo ready; while :; do sleep 0.05; done",
                           {"--grace", "300"}));
  wait_for_both(launch, "ready");
  launch.signal(sys::Signal::interrupt);
  wait_for_both(launch, "no");
  launch.signal(sys::Signal::terminate);
  const Finished finished = launch.finish();
  EXPECT_EQ(finished.status, exited(128 + SIGKILL));
}

TEST(LaunchSignals, TheGracePeriodKills) {
  Launched launch(ranks_of(1, "trap '' TERM; echo ready; while :; do sleep 0.05; done",
                           {"--grace", "0.2", "--on-failure", "restart"}));
  launch.wait_for("ready");
  launch.signal(sys::Signal::terminate);
  const Finished finished = launch.finish();
  EXPECT_EQ(finished.status, exited(128 + SIGKILL));
  EXPECT_THAT(finished.err, Not(HasSubstr("restart 1"))) << "the user asked for the end";
}

TEST(LaunchRestart, StartsAllAgainAfterAPause) {
  const Time start = MonotonicClock().now();
  const Finished finished = launch_command(
      ranks_of(2,
               "echo start $LOCKSTEP_GENERATION_HINT; "
               "if [ $LOCKSTEP_RANK$LOCKSTEP_GENERATION_HINT = 10 ]; then exit 5; fi; "
               "if [ $LOCKSTEP_GENERATION_HINT = 0 ]; then exec sleep 600; fi",
               {"--on-failure", "restart", "--settle", "0"}));
  EXPECT_EQ(finished.status, exited(0)) << finished.err;
  EXPECT_GE(MonotonicClock().now() - start, 1s);
  EXPECT_THAT(finished.out, AllOf(HasSubstr("[0] start 1"), HasSubstr("[1] start 1")));
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("exited with 5"), HasSubstr("lockstep: restart 1 in 1 s")));
}

TEST(LaunchRestart, GivesUpAndQuotesTheFirstCause) {
  const Finished finished =
      launch_command(ranks_of(1, "echo reason $LOCKSTEP_GENERATION_HINT >&2; exit 5",
                              {"--on-failure", "restart", "--max-restarts", "1"}));
  EXPECT_EQ(finished.status, exited(5));
  const auto giving_up = finished.err.find("giving up");
  ASSERT_NE(giving_up, std::string::npos) << finished.err;
  EXPECT_THAT(finished.err.substr(giving_up),
              AllOf(HasSubstr("the same first cause 2 times: rank 0"), HasSubstr("exited with 5"),
                    HasSubstr("| reason 0"), Not(HasSubstr("reason 1"))));
}

TEST(LaunchRestart, SomeExitCodesAreFinal) {
  for (const int code : {2, 78, 126, 127}) {
    const Finished finished =
        launch_command(ranks_of(1, "exit " + std::to_string(code), {"--on-failure", "restart"}));
    EXPECT_EQ(finished.status, exited(code));
    EXPECT_THAT(finished.err, HasSubstr("no restart"));
  }
}

TEST(LaunchRestart, NoneWithoutBeingTold) {
  const Finished finished = launch_command(ranks_of(1, "echo once; exit 5"));
  EXPECT_EQ(finished.status, exited(5));
  EXPECT_EQ(finished.out, "[0] once\n");
}

TEST(LaunchRestart, ThePauseCanBeInterrupted) {
  Launched launch(ranks_of(1, "exit 5", {"--on-failure", "restart"}));
  launch.wait_for("restart 1 in 1 s");
  launch.signal(sys::Signal::interrupt);
  EXPECT_EQ(launch.finish().status, exited(128 + SIGINT));
}

}  // namespace
}  // namespace lockstep::tool
