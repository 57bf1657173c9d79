// An operation on its own, over links that are driven by hand: what a peer shows is not trusted.
#include "coll/operation.h"

#include <gmock/gmock.h>

#include <array>
#include <thread>
#include <vector>

#include "lockstep/error.h"
#include "plan/algorithm.h"
#include "transport/memory.h"

namespace lockstep::coll {
namespace {

using transport::Exposure;
using transport::Pieces;

/// One rank's side of an all-reduce of float32 in place, by the plan that reads peers' buffers.
struct Side {
  Side(int rank, std::uint64_t count, std::uint64_t shown)
      : values(count, 1.0F),
        piece{reinterpret_cast<std::byte*>(values.data()), 0, count},
        shown_piece{piece.data, 0, shown},
        plan(plan::find_algorithm(plan::Kind::all_reduce, "one_pass")
                 ->make({.kind = plan::Kind::all_reduce, .count = count}, plan::Layout::uniform(2),
                        rank)) {
    descriptor.sequence = 1;
    descriptor.count = count;
    descriptor.kind = static_cast<std::uint8_t>(plan::Kind::all_reduce);
    descriptor.dtype = static_cast<std::uint8_t>(DType::float32);
    operation.start(plan, bindings, descriptor, exposure);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  std::vector<float> values;
  Pieces::Piece piece;
  Pieces::Piece shown_piece;
  Pieces own{{&piece, 1}};
  Pieces to_others{{&shown_piece, 1}};
  Exposure exposure{{&to_others, 1}, to_others};
  Bindings bindings{.dtype = DType::float32, .inputs = {&own, 1}, .output = own};
  plan::Plan plan;
  wire::Descriptor descriptor;
  Operation operation;
};

TEST(Operation, APeerThatShowsTooLittleIsNamedAndNobodyWaitsForTheReader) {
  transport::MemoryFabric fabric{2, 1};
  std::array links{fabric.link(0, {0, 1}, 0), fabric.link(0, {0, 1}, 1)};
  constexpr std::uint64_t kCount = 100'000;
  Side mine(0, kCount, kCount);
  Side theirs(1, kCount, 1000);
  ASSERT_EQ(mine.operation.poll(*links[0]), State::pending);
  ASSERT_EQ(theirs.operation.poll(*links[1]), State::pending);
  // It will read half of the other's values and write half of the sums there.
  EXPECT_EQ(mine.operation.moved(*links[0]).done, 0U);
  EXPECT_EQ(mine.operation.moved(*links[0]).total, kCount * sizeof(float));
  try {
    mine.operation.poll(*links[0]);
    ADD_FAILURE() << "memory behind the end was read";
  } catch (const DataError& e) {
    EXPECT_THAT(e.culprits(), testing::ElementsAre(1));
    EXPECT_THAT(e.what(), testing::HasSubstr("rank 1 shows fewer elements"));
    links[0]->fail({e.kind(), e.code(), e.what(), e.culprits()});
  }
  // Rank 1 takes its buffers back once nobody touches them: rank 0 no longer does.
  links[1]->quiesce();
  EXPECT_EQ(theirs.operation.poll(*links[1]), State::failed);
}

}  // namespace
}  // namespace lockstep::coll
