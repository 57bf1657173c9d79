#include "transport/mismatch.h"

#include <gmock/gmock.h>

#include "plan/plan.h"

namespace lockstep::transport {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

wire::Descriptor request(plan::Kind kind, std::uint64_t count, int root = -1) {
  wire::Descriptor descriptor;
  descriptor.sequence = 12;
  descriptor.kind = static_cast<std::uint8_t>(kind);
  descriptor.dtype = 1;
  descriptor.count = count;
  descriptor.root = root;
  return descriptor;
}

TEST(Mismatch, BlamesTheMinority) {
  const auto usual = request(plan::Kind::all_gather, 4);
  const auto odd = request(plan::Kind::all_gather, 5);
  const Status status = mismatch(12, {usual, odd, usual, usual});
  EXPECT_EQ(status.kind(), ErrorKind::mismatch);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.culprits(), ElementsAre(1));
  EXPECT_THAT(status.message(), HasSubstr("operation 12"));
  EXPECT_THAT(status.message(), HasSubstr("rank 1: all_gather float32[5]"));
}

TEST(Mismatch, BlamesAllWhereNoneIsMoreFrequent) {
  const auto a = request(plan::Kind::all_gather, 4);
  const auto b = request(plan::Kind::all_gather, 5);
  EXPECT_THAT(mismatch(12, {a, b, b, a}).culprits(), ElementsAre(0, 1, 2, 3));
}

TEST(Mismatch, WhoHasNotArrivedIsSaidAndNotBlamed) {
  const auto a = request(plan::Kind::all_gather, 4);
  const auto b = request(plan::Kind::barrier, 0);
  const Status status = mismatch(12, {a, std::nullopt, b});
  EXPECT_THAT(status.culprits(), ElementsAre(0, 2));
  EXPECT_THAT(status.message(), HasSubstr("rank 1: has not arrived"));
}

TEST(Mismatch, SubgroupsAreNamedByTheirRanksInTheGeneration) {
  const auto a = request(plan::Kind::all_gather, 4);
  const auto b = request(plan::Kind::barrier, 0);
  const std::vector<int> members = {6, 2, 4};
  const Status status = mismatch(12, {a, b, a}, members);
  EXPECT_THAT(status.culprits(), ElementsAre(2));
  EXPECT_THAT(status.message(), HasSubstr("rank 6: all_gather"));
}

TEST(Mismatch, SaysWhereToLookWhenOnlyTheAlgorithmsDiffer) {
  auto a = request(plan::Kind::all_gather, 4);
  auto b = a;
  b.plan_hash = 7;
  EXPECT_THAT(mismatch(12, {a, b}).message(), HasSubstr("LOCKSTEP_ALGORITHMS"));
  b.count = 5;
  EXPECT_THAT(mismatch(12, {a, b}).message(), testing::Not(HasSubstr("LOCKSTEP_ALGORITHMS")));
}

TEST(Mismatch, DescriptionsThatReadAlikeAreShownInFull) {
  auto a = request(plan::Kind::all_gather, 4);
  auto b = request(plan::Kind::all_gather, 5);
  a.description = wire::Description("gather float32[2]", {"train.cc", 88});
  b.description = wire::Description("gather float32[3]", {"train.cc", 88});
  EXPECT_THAT(mismatch(12, {a, b}).message(),
              testing::AllOf(HasSubstr("rank 0: gather float32[2] at train.cc:88\n"),
                             HasSubstr("rank 1: gather float32[3] at train.cc:88\n")));
  b.description = a.description;
  EXPECT_THAT(mismatch(12, {a, b}).message(),
              HasSubstr("rank 1: gather float32[2] at train.cc:88 (all_gather float32[5])\n"));
}

TEST(Mismatch, BroadcastsWithoutASourceOrWithTwo) {
  const auto from = [](int root) { return request(plan::Kind::broadcast, 4, root); };
  const Status none = mismatch(12, {from(1), from(2), from(0)});
  EXPECT_EQ(none.code(), Code::internal);
  EXPECT_THAT(none.message(), HasSubstr("found no source"));
  EXPECT_THAT(mismatch(12, {from(0), from(1)}).message(), HasSubstr("has 2 sources"));
}

}  // namespace
}  // namespace lockstep::transport
