// An operation on its own, over links that are driven by hand: what a peer shows is not trusted.
#include "coll/operation.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "lockstep/error.h"
#include "plan/algorithm.h"
#include "transport/memory.h"
#include "transport/shm.h"

namespace lockstep::coll {
namespace {

using transport::Exposure;
using transport::Pieces;

/// One rank's side of an all-reduce of float32 in place, by the plan that reads peers' buffers.
struct Side {
  /// `memory`: where its values are to lie; null: in memory of its own.
  Side(int rank, std::uint64_t count, std::uint64_t shown, float* memory = nullptr)
      : values(memory == nullptr ? count : 0, 1.0F),
        piece{reinterpret_cast<std::byte*>(memory == nullptr ? values.data() : memory), 0, count},
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

/// Two processes' ranks; rank 1 has not heard yet that the generation is over.
TEST(Operation, NobodyWritesIntoTheBuffersOfARankThatHasFailed) {
  constexpr std::uint64_t kCount = 1'000'000;
  constexpr std::size_t kArena = std::size_t{16} << 20;
  const auto segment =
      std::make_shared<sys::Segment>(sys::Segment::create("lockstep-test", 2 * kArena));
  transport::ShmHost first(segment, 0, 2);
  transport::ShmHost second(segment, 1, 2);
  std::array<transport::Failure, 2> failures;
  transport::ShmLink mine(first, 1, {0, 1}, {0, 1}, 0, failures[0]);
  transport::ShmLink theirs(second, 1, {0, 1}, {0, 1}, 1, failures[1]);
  const auto memory = first.allocate(kCount * sizeof(float));
  const auto their_memory = second.allocate(kCount * sizeof(float));
  const std::span values(reinterpret_cast<float*>(memory.get()), kCount);
  Side one(0, kCount, kCount, values.data());
  Side other(1, kCount, kCount, reinterpret_cast<float*>(their_memory.get()));
  ASSERT_EQ(one.operation.poll(mine), State::pending);
  failures[0].set({ErrorKind::cancelled, Code::cancelled, "enough"});
  mine.quiesce();
  std::fill(values.begin(), values.end(), 1.0F);  // the caller has thrown and goes on
  const std::span others(reinterpret_cast<float*>(their_memory.get()), kCount);
  std::fill(others.begin(), others.end(), 1.0F);
  EXPECT_EQ(other.operation.poll(theirs), State::pending);
  EXPECT_EQ(std::count(values.begin(), values.end(), 1.0F), kCount);
  // It waits for the verdict, and for nobody in particular.
  const int peer = other.operation.waiting_for();
  EXPECT_FALSE(theirs.wait(
      peer, [] { return false; }, Deadline::after(std::chrono::milliseconds(1))));
  failures[1].set({ErrorKind::cancelled, Code::cancelled, "enough"});
  EXPECT_EQ(other.operation.poll(theirs), State::failed);
}

}  // namespace
}  // namespace lockstep::coll
