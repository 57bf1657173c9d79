#include "train/bucket_plan.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

TEST(BucketPlan, FillsABucketUpToTheLimitInTheOrderGiven) {
  const auto buckets =
      plan_buckets({{3, at::kFloat, 16}, {1, at::kFloat, 16}, {2, at::kFloat, 1}}, {.limit = 128});
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].bytes(), 128);
  ASSERT_EQ(buckets[0].slots.size(), 2U);
  EXPECT_EQ(buckets[0].slots[0].parameter, 3);
  EXPECT_EQ(buckets[0].slots[1].parameter, 1);
  EXPECT_EQ(buckets[0].slots[1].begin, 16);
  EXPECT_EQ(buckets[1].slots[0].parameter, 2);
}

TEST(BucketPlan, BeginsEachGradientAtAWholeCacheLine) {
  const auto buckets = plan_buckets({{0, at::kFloat, 3}, {1, at::kFloat, 5}}, {});
  ASSERT_EQ(buckets.size(), 1U);
  EXPECT_EQ(buckets[0].slots[1].begin, 16);
  EXPECT_EQ(buckets[0].elements, 32);
}

TEST(BucketPlan, GivesALargeGradientABucketToItself) {
  const auto buckets = plan_buckets({{0, at::kFloat, 1000}, {1, at::kFloat, 1}}, {.limit = 128});
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].slots.size(), 1U);
}

TEST(BucketPlan, LetsLargeOnesTravelAloneAndTheOthersTogether) {
  const auto buckets = plan_buckets({{0, at::kFloat, 3},
                                     {1, at::kFloat, 100},
                                     {2, at::kFloat, 5},
                                     {3, at::kFloat, 99},
                                     {4, at::kFloat, 101}},
                                    {.alone = 400});
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_FALSE(buckets[0].alone);
  ASSERT_EQ(buckets[0].slots.size(), 3U);
  EXPECT_EQ(buckets[0].slots[1].parameter, 2);
  EXPECT_EQ(buckets[0].slots[2].parameter, 3);
  EXPECT_TRUE(buckets[1].alone);
  EXPECT_EQ(buckets[1].slots.front().parameter, 1);
  EXPECT_EQ(buckets[1].elements, 100);
  EXPECT_TRUE(buckets[2].alone);
  EXPECT_EQ(buckets[2].elements, 101) << "without a gap";
}

TEST(BucketPlan, NeverMixesElementTypes) {
  const auto buckets =
      plan_buckets({{0, at::kFloat, 1}, {1, at::kDouble, 1}, {2, at::kFloat, 1}}, {});
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_EQ(buckets[1].dtype, at::kDouble);
}

TEST(BucketPlan, OfNothingIsNothing) { EXPECT_TRUE(plan_buckets({}, {.limit = 100}).empty()); }

}  // namespace
}  // namespace lockstep::train
