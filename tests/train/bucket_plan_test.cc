#include "train/bucket_plan.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

TEST(BucketPlan, FillsABucketUpToTheLimitInTheOrderGiven) {
  const auto buckets =
      plan_buckets({{3, at::kFloat, 16}, {1, at::kFloat, 16}, {2, at::kFloat, 1}}, 128);
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].bytes(), 128);
  ASSERT_EQ(buckets[0].slots.size(), 2U);
  EXPECT_EQ(buckets[0].slots[0].parameter, 3);
  EXPECT_EQ(buckets[0].slots[1].parameter, 1);
  EXPECT_EQ(buckets[0].slots[1].begin, 16);
  EXPECT_EQ(buckets[1].slots[0].parameter, 2);
}

TEST(BucketPlan, BeginsEachGradientAtAWholeCacheLine) {
  const auto buckets = plan_buckets({{0, at::kFloat, 3}, {1, at::kFloat, 5}}, 0);
  ASSERT_EQ(buckets.size(), 1U);
  EXPECT_EQ(buckets[0].slots[1].begin, 16);
  EXPECT_EQ(buckets[0].elements, 32);
}

TEST(BucketPlan, GivesALargeGradientABucketToItself) {
  const auto buckets = plan_buckets({{0, at::kFloat, 1000}, {1, at::kFloat, 1}}, 128);
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].slots.size(), 1U);
}

TEST(BucketPlan, NeverMixesElementTypes) {
  const auto buckets =
      plan_buckets({{0, at::kFloat, 1}, {1, at::kDouble, 1}, {2, at::kFloat, 1}}, 0);
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_EQ(buckets[1].dtype, at::kDouble);
}

TEST(BucketPlan, OfNothingIsNothing) { EXPECT_TRUE(plan_buckets({}, 100).empty()); }

}  // namespace
}  // namespace lockstep::train
