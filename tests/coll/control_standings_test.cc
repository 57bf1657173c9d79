// Who keeps the others waiting.
#include <gmock/gmock.h>

#include "coll/group_spec.h"
#include "tests/coll/controls.h"

namespace lockstep::coll {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;

// A27: whoever waits knows for whom, also for ranks it has no control connection with.
TEST_F(Controls, EveryoneLearnsWhoKeepsTheOthersWaiting) {
  start(7);
  run(1s);
  for (int r = 0; r < 7; ++r) {
    for (std::uint64_t i = 1; i <= (r == 3 ? 4 : 5); ++i) rank(r).history.add(barrier(i));
  }
  run(500ms);
  for (const int r : {0, 1, 2, 4, 5, 6}) {
    EXPECT_THAT(rank(r).control->late(5), ElementsAre(3)) << r;
    EXPECT_THAT(rank(r).control->late(6), ElementsAre()) << r << ": nothing is known of it yet";
  }
  EXPECT_THAT(rank(3).control->late(4), ElementsAre());
  rank(3).history.add(barrier(5));  // it has come after all
  run(300ms);
  for (const int r : {0, 1, 5}) EXPECT_THAT(rank(r).control->late(5), ElementsAre()) << r;
  // What was told of an earlier wait says nothing about a later one.
  for (int r = 0; r < 7; ++r) {
    for (std::uint64_t i = 6; i <= (r == 0 ? 8 : 9); ++i) rank(r).history.add(barrier(i));
  }
  EXPECT_THAT(rank(5).control->late(9), ElementsAre());
  run(500ms);
  EXPECT_THAT(rank(5).control->late(9), ElementsAre(0));
  expect_no_failure();
}

}  // namespace
}  // namespace lockstep::coll
