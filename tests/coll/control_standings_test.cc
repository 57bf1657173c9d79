// Who keeps the others of a group waiting.
#include <gmock/gmock.h>

#include <map>

#include "coll/group_spec.h"
#include "coll/standings.h"
#include "tests/coll/controls.h"

namespace lockstep::coll {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kGroup = 77;
constexpr std::uint64_t kOther = 78;

class Waits : public Controls {
 protected:
  void enter(std::uint64_t group, const std::vector<int>& members) {
    for (const int r : members) counters_[{group, r}] = rank(r).control->enter_group(group);
  }
  void begin(std::uint64_t group, const std::vector<int>& members, std::uint64_t sequence,
             std::uint64_t request = 0) {
    for (const int r : members) counters_.at({group, r})->set(sequence, request);
  }
  void leave(std::uint64_t group, int r) { counters_.erase({group, r}); }
  std::vector<int> late(int r, std::uint64_t group, std::uint64_t sequence) {
    return rank(r).control->late(group, sequence);
  }

 private:
  std::map<std::pair<std::uint64_t, int>, Standings::Counter> counters_;
};

// A27: whoever waits knows for whom, also for ranks it has no control connection with.
TEST_F(Waits, EveryoneLearnsWhoKeepsTheOthersWaiting) {
  start(7);
  enter(kWorld, {0, 1, 2, 3, 4, 5, 6});
  run(1s);
  begin(kWorld, {0, 1, 2, 4, 5, 6}, 5);
  begin(kWorld, {3}, 4);
  run(500ms);
  for (const int r : {0, 1, 2, 4, 5, 6}) {
    EXPECT_THAT(late(r, kWorld, 5), ElementsAre(3)) << r;
    EXPECT_THAT(late(r, kWorld, 6), IsEmpty()) << r << ": nothing is known of it yet";
    EXPECT_THAT(late(r, kGroup, 5), IsEmpty()) << r << ": it is in no such group";
  }
  EXPECT_THAT(late(3, kWorld, 4), IsEmpty());
  begin(kWorld, {3}, 5);  // it has come after all
  run(300ms);
  for (const int r : {0, 1, 5}) EXPECT_THAT(late(r, kWorld, 5), IsEmpty()) << r;
  // What was told of an earlier wait says nothing about a later one.
  begin(kWorld, {0}, 8);
  begin(kWorld, {1, 2, 3, 4, 5, 6}, 9);
  EXPECT_THAT(late(5, kWorld, 9), IsEmpty());
  run(500ms);
  EXPECT_THAT(late(5, kWorld, 9), ElementsAre(0));
  expect_no_failure();
}

TEST_F(Waits, TheMembersOfASubgroupLearnItOfTheirs) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    start(7, {.delay = 1ms, .jitter = 20ms}, seed);
    enter(kWorld, {0, 1, 2, 3, 4, 5, 6});
    enter(kGroup, {1, 2, 4, 6});
    enter(kOther, {0, 3, 5});
    run(500ms);
    begin(kWorld, {0, 1, 2, 3, 4, 5, 6}, 2);
    begin(kGroup, {1, 2, 6}, 1);  // 4 has begun none of it
    begin(kOther, {0}, 100);
    begin(kOther, {3, 5}, 99);
    run(600ms);
    for (const int r : {1, 2, 6}) EXPECT_THAT(late(r, kGroup, 1), ElementsAre(4)) << r;
    EXPECT_THAT(late(0, kOther, 100), ElementsAre(3, 5));
    for (int r = 0; r < 7; ++r) EXPECT_THAT(late(r, kWorld, 2), IsEmpty()) << r;
    for (const int r : {0, 3, 5}) EXPECT_THAT(late(r, kGroup, 1), IsEmpty()) << r;
    expect_no_failure();
  }
}

TEST_F(Waits, NobodyIsNamedWhoHasLeftTheGroup) {
  start(4);
  enter(kGroup, {0, 1, 2, 3});
  run(500ms);
  begin(kGroup, {0, 1}, 5);
  begin(kGroup, {2, 3}, 4);
  run(500ms);
  EXPECT_THAT(late(1, kGroup, 5), ElementsAre(2, 3));
  leave(kGroup, 2);
  run(500ms);
  EXPECT_THAT(late(1, kGroup, 5), ElementsAre(3));
  // Nothing is kept of a group whose links are gone.
  for (const int r : {0, 1, 3}) leave(kGroup, r);
  run(500ms);
  enter(kGroup, {1});
  EXPECT_THAT(late(1, kGroup, 5), IsEmpty());
}

// A pulse goes on as usual, whatever rank 0 has to tell.
TEST_F(Waits, ARankThatMovesOnSlowlyKeepsNobodyWaiting) {
  start(3);
  enter(kGroup, {0, 1, 2});
  for (std::uint64_t i = 1; i <= 30; ++i) {
    begin(kGroup, {0, 2}, i + 1);
    begin(kGroup, {1}, i);
    run(100ms);
    EXPECT_THAT(late(2, kGroup, i + 1), IsEmpty()) << i;
  }
  expect_no_failure();
}

// As in shared memory, where the members see each other's requests.
TEST_F(Waits, B2TheMinorityOfASubgroupIsBlamed) {
  for (const std::vector<int>& odd : {std::vector<int>{4}, {1}, {2, 6}}) {
    start(7);
    enter(kWorld, {0, 1, 2, 3, 4, 5, 6});
    enter(kGroup, {1, 2, 3, 4, 6});
    run(500ms);
    begin(kWorld, {0, 1, 2, 3, 4, 5, 6}, 2);
    begin(kGroup, {1, 2, 3, 4, 6}, 9, 1111);
    begin(kGroup, odd, 9, 2222);
    // The two that have met.
    const std::vector<int> both = {std::min(3, odd.front()), std::max(3, odd.front())};
    for (const int r : both) {
      rank(r).failure.report(
          {ErrorKind::mismatch, Code::invalid_argument, "the ranks disagree", both});
    }
    run(500ms);
    const Status why = verdict({});
    EXPECT_EQ(why.kind(), ErrorKind::mismatch);
    EXPECT_EQ(why.culprits(), odd);
    EXPECT_THAT(why.message(), testing::HasSubstr("the same as rank 3"));
  }
}

TEST_F(Waits, WithoutAMajorityBothAreBlamed) {
  start(4);
  enter(kGroup, {0, 1, 2, 3});
  run(500ms);
  begin(kGroup, {0, 1}, 9, 1111);
  begin(kGroup, {2, 3}, 9, 2222);
  rank(1).failure.report(
      {ErrorKind::mismatch, Code::invalid_argument, "the ranks disagree", {1, 2}});
  run(500ms);
  EXPECT_THAT(verdict({}).culprits(), ElementsAre(1, 2));
}

TEST(StandingsOf, TooManyGroupsAreThoseThatMovedLast) {
  Standings standings;
  std::vector<Standings::Counter> counters;
  for (std::uint64_t group = 0; group < 40; ++group) counters.push_back(standings.enter(group));
  EXPECT_EQ(standings.positions().size(), 16U);
  for (std::uint64_t look = 1; look < 50; ++look) {
    for (std::size_t group = 20; group < 36; ++group) counters[group]->set(look, 0);
    const auto positions = standings.positions();
    ASSERT_EQ(positions.size(), 16U);
    for (std::size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(positions[i], (wire::Position{.group = 20 + i, .begun = look}));
    }
  }
  // Time does not bring back those that stand still.
  counters[0]->set(7, 0);
  for (int look = 0; look < 30; ++look) {
    EXPECT_EQ(standings.positions().front(), (wire::Position{.group = 0, .begun = 7}));
  }
  counters.resize(1);
  EXPECT_EQ(standings.positions().size(), 1U);
  counters.clear();
  EXPECT_TRUE(standings.positions().empty());
}

}  // namespace
}  // namespace lockstep::coll
