#include "train/bucket_slices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lockstep::train {
namespace {

BucketLayout bucket_of(std::int64_t elements, at::ScalarType dtype = at::kFloat) {
  return {dtype, elements, {{0, 0}}, true};
}

/// Every element is somebody's, once; slices begin at lines and lanes keep the order of buckets.
void expect_whole(const std::vector<BucketLayout>& buckets, const LaneSlices& dealt) {
  std::vector<std::vector<BucketSlice>> of_bucket(buckets.size());
  for (const auto& lane : dealt) {
    for (std::size_t i = 0; i < lane.size(); ++i) {
      if (i > 0) {
        EXPECT_LT(lane[i - 1].bucket, lane[i].bucket);
      }
      of_bucket[lane[i].bucket].push_back(lane[i]);
    }
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    std::sort(of_bucket[b].begin(), of_bucket[b].end(),
              [](const BucketSlice& x, const BucketSlice& y) { return x.begin < y.begin; });
    std::int64_t next = 0;
    for (const BucketSlice& slice : of_bucket[b]) {
      EXPECT_EQ(slice.begin, next) << "bucket " << b;
      EXPECT_EQ(slice.begin % line_elements(buckets[b].dtype), 0) << "bucket " << b;
      next = slice.begin + slice.elements;
    }
    EXPECT_EQ(next, buckets[b].elements) << "bucket " << b;
  }
}

TEST(BucketSlices, GiveEachLaneAsMuchUpToALine) {
  const std::vector<BucketLayout> buckets = {bucket_of(100'003)};
  const LaneSlices dealt = deal_slices(buckets, 3);
  ASSERT_EQ(dealt.size(), 3U);
  expect_whole(buckets, dealt);
  for (const auto& lane : dealt) {
    ASSERT_EQ(lane.size(), 1U);
    EXPECT_NEAR(static_cast<double>(lane[0].elements), 100'003 / 3.0, 16);
  }
}

TEST(BucketSlices, LeaveLittleToTheFirstLane) {
  const std::vector<BucketLayout> buckets = {bucket_of(16), bucket_of(8000, at::kHalf),
                                             bucket_of(0)};
  const LaneSlices dealt = deal_slices(buckets, 4);
  ASSERT_EQ(dealt.size(), 1U);
  expect_whole(buckets, dealt);
  EXPECT_EQ(dealt[0].size(), 3U);
}

TEST(BucketSlices, CutSmallBucketsLessAndDealThemInTurn) {
  const std::int64_t least = kLeastSliceBytes / 4;
  const std::vector<BucketLayout> buckets = {bucket_of(least), bucket_of(2 * least),
                                             bucket_of(3 * least - 1), bucket_of(least)};
  const LaneSlices dealt = deal_slices(buckets, 3);
  ASSERT_EQ(dealt.size(), 3U);
  expect_whole(buckets, dealt);
  for (const auto& lane : dealt) EXPECT_EQ(lane.size(), 2U);
}

TEST(BucketSlices, OfOneLaneAreWhole) {
  const std::vector<BucketLayout> buckets = {bucket_of(1'000'000), bucket_of(3)};
  const LaneSlices dealt = deal_slices(buckets, 1);
  ASSERT_EQ(dealt.size(), 1U);
  expect_whole(buckets, dealt);
  EXPECT_EQ(dealt[0].size(), 2U);
}

TEST(BucketSlices, OfNothingAreNone) {
  const LaneSlices dealt = deal_slices({}, 4);
  ASSERT_EQ(dealt.size(), 1U);
  EXPECT_TRUE(dealt[0].empty());
}

TEST(BucketSlices, LoseNothingOfAnyBuckets) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  const at::ScalarType dtypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kComplexDouble};
  for (int i = 0; i < 200; ++i) {
    std::vector<BucketLayout> buckets;
    for (auto n = random() % 20; n > 0; --n) {
      buckets.push_back(bucket_of(random() % (1U << (random() % 20)), dtypes[random() % 4]));
    }
    const int lanes = 1 + static_cast<int>(random() % 9);
    const LaneSlices dealt = deal_slices(buckets, lanes);
    EXPECT_LE(dealt.size(), static_cast<std::size_t>(lanes));
    expect_whole(buckets, dealt);
    EXPECT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << " turn " << i;
  }
}

}  // namespace
}  // namespace lockstep::train
