#include "plan/builder.h"

#include <gtest/gtest.h>

#include "plan/binomial.h"

namespace lockstep::plan {
namespace {

TEST(Slices, SplitEvenlyTilesAndKeepsWholeLines) {
  for (const std::uint64_t count : {0ULL, 1ULL, 5ULL, 16ULL, 47ULL, 48ULL, 1000ULL, 1ULL << 60}) {
    for (const int parts : {1, 2, 3, 7, 64}) {
      std::uint64_t next = 0;
      for (const Slice slice : split_evenly(count, parts)) {
        EXPECT_EQ(slice.begin, next);
        EXPECT_LE(slice.begin, slice.end);
        if (count >= 16ULL * static_cast<unsigned>(parts)) {
          EXPECT_TRUE(slice.end % 16 == 0 || slice.end == count);
        }
        next = slice.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(Slices, SplitEvenlyIsEven) {
  for (const Slice slice : split_evenly(1000, 3)) {
    EXPECT_GE(slice.count(), 320U);
    EXPECT_LE(slice.count(), 352U);
  }
}

TEST(Slices, Chunks) {
  const Slice slice{10, 17};
  EXPECT_EQ(chunks_in(slice, 3), 3U);
  EXPECT_EQ(chunk_of(slice, 3, 2).begin, 16U);
  EXPECT_EQ(chunk_of(slice, 3, 2).end, 17U);
  EXPECT_EQ(chunk_of(slice, 3, 3).count(), 0U);
  EXPECT_EQ(chunks_in({4, 4}, 3), 0U);
}

TEST(Binomial, ParentsAndChildrenAgree) {
  for (int n = 1; n <= 70; ++n) {
    int edges = 0;
    for (int position = 0; position < n; ++position) {
      for (const int child : binomial_children(position, n)) {
        EXPECT_EQ(binomial_parent(child), position);
        ++edges;
      }
    }
    EXPECT_EQ(edges, n - 1);
  }
}

TEST(Builder, DropsEmptyInstructionsAndKeepsOneProgramForAllChunks) {
  const Request request{.count = 8};
  const Layout layout = Layout::uniform(2, 3);
  Builder b(request, layout, 0);
  b.send(1, b.input(0), 0);
  b.copy(b.input(0), b.output(0), 0);
  const std::vector<Piece> pieces = {{{0, 2}, b.take_partial(4)}, {{2, 4}, b.take_partial(4)}};
  b.reduce(pieces, b.output(0), 4, Finish::yes);
  b.reduce(pieces, b.output(4), 4, Finish::yes);
  const Plan plan = b.done();
  EXPECT_EQ(plan.code.size(), 2U);
  EXPECT_EQ(plan.merges.size(), 2U);
  EXPECT_EQ(plan.partial_count, 20U);  // the second region begins at a cache line
  EXPECT_EQ(plan.scratch_count, 0U);
}

}  // namespace
}  // namespace lockstep::plan
