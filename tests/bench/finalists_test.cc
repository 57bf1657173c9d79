#include "bench/peers/finalists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::bench::peers {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Finalists, AreTheBestAndThoseCloseToIt) {
  EXPECT_THAT(finalists_of({}), IsEmpty());
  EXPECT_THAT(finalists_of({2.0}), ElementsAre(true));
  EXPECT_THAT(finalists_of({1.61, 1.0, 1.59}), ElementsAre(false, true, true));
  EXPECT_THAT(finalists_of({1.3, 1.2, 1.1, 1.0}), ElementsAre(false, true, true, true));
}

/// Otherwise we would be measured against whoever was disturbed, and not against the best.
TEST(Finalists, OneWithoutATimePutsNobodyOut) {
  EXPECT_THAT(finalists_of({std::nullopt, 1.0, 1.2, 9.0}), ElementsAre(true, true, true, false));
  EXPECT_THAT(finalists_of({1.0, std::nullopt, 1.0, 1.0, std::nullopt}),
              ElementsAre(true, true, true, true, true));
  EXPECT_THAT(finalists_of({std::nullopt, std::nullopt}), ElementsAre(true, true));
}

}  // namespace
}  // namespace lockstep::bench::peers
