// The shared-memory link on its own: large slots, and a peer whose part of the segment is damaged.
#include "transport/shm.h"

#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "lockstep/error.h"

namespace lockstep::transport {
namespace {

using testing::HasSubstr;

constexpr std::size_t kLarge = 100'000;  // bytes of a slot: more than a desk holds

wire::Descriptor all_reduce(std::uint64_t sequence) {
  wire::Descriptor descriptor;
  descriptor.sequence = sequence;
  descriptor.count = kLarge / sizeof(float);
  descriptor.kind = static_cast<std::uint8_t>(plan::Kind::all_reduce);
  descriptor.op = 0;
  descriptor.dtype = 1;
  return descriptor;
}

/// Two ranks of a host, all in this thread.
class ShmLinks : public testing::Test {
 protected:
  ShmLinks() {
    auto segment =
        std::make_shared<sys::Segment>(sys::Segment::create("lockstep-test", kRanks * kArena));
    for (int index = 0; index < kRanks; ++index) {
      hosts_.push_back(std::make_unique<ShmHost>(segment, index, kRanks));
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      links_.push_back(std::make_unique<ShmLink>(*hosts_[static_cast<std::size_t>(rank)], kGroup,
                                                 std::vector{0, 1}, std::vector{0, 1}, rank,
                                                 failures_[static_cast<std::size_t>(rank)]));
    }
  }
  Link& link(int rank) { return *links_[static_cast<std::size_t>(rank)]; }
  /// Both start an operation, fill their slots and say so.
  void fill_slots(std::uint64_t sequence) {
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(link(rank).begin(all_reduce(sequence), nothing_, kLarge), kNobody);
      std::memset(link(rank).slot(rank), filling(rank, sequence), kLarge);
      link(rank).publish(1);
    }
  }
  static int filling(int rank, std::uint64_t sequence) {
    return static_cast<int>(sequence % 100) + 100 * rank;
  }
  /// What rank 1 shows the others of itself.
  Board& board_of_1() {
    return *reinterpret_cast<Board*>(hosts_.front()->find(1, kGroup, sizeof(Board)));
  }

  static constexpr int kRanks = 2;
  static constexpr std::size_t kArena = std::size_t{16} << 20;
  static constexpr std::uint64_t kGroup = 77;
  std::vector<std::unique_ptr<ShmHost>> hosts_;
  std::array<Failure, kRanks> failures_;
  std::vector<std::unique_ptr<ShmLink>> links_;
  Exposure nothing_;
};

TEST_F(ShmLinks, LargeSlotsMoveAndArriveWhole) {
  std::vector<std::byte> expected(kLarge);
  std::vector<const std::byte*> places;
  for (std::uint64_t sequence = 1; sequence <= 60; ++sequence) {
    fill_slots(sequence);
    for (int rank = 0; rank < kRanks; ++rank) {
      const int peer = 1 - rank;
      ASSERT_TRUE(link(rank).reached(peer, 1));
      std::memset(expected.data(), filling(peer, sequence), kLarge);
      ASSERT_EQ(std::memcmp(link(rank).slot(peer), expected.data(), kLarge), 0) << sequence;
    }
    places.push_back(link(0).slot(1));
    for (int rank = 0; rank < kRanks; ++rank) ASSERT_EQ(link(rank).end(), kNobody);
  }
  EXPECT_NE(places[0], places[1]) << "lines that the peer has just read are slow to write";
}

/// Whatever the number is, it leads to an error and never to memory that is not the peer's stage.
TEST_F(ShmLinks, ADamagedStageIsRefused) {
  fill_slots(1);
  ASSERT_TRUE(link(0).reached(1, 1));
  std::atomic<std::uint64_t>& stage = board_of_1().ledger.stage;
  const std::uint64_t right = stage.load();
  constexpr std::uint64_t kOwnArena = std::uint64_t{1} << 20;
  constexpr std::uint64_t kItsHeader = kArena;
  constexpr std::uint64_t kTooNearItsEnd = 2 * kArena - 4096;
  for (const std::uint64_t wrong :
       {std::uint64_t{0}, kOwnArena, kItsHeader, kTooNearItsEnd, 2 * std::uint64_t{kArena},
        right + 1, ~std::uint64_t{0} << 12, ~std::uint64_t{0}}) {
    stage.store(wrong);
    try {
      link(0).slot(1);
      ADD_FAILURE() << wrong << " was followed";
    } catch (const SystemError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1 shows a stage outside of its memory"));
    }
  }
  stage.store(right);
  EXPECT_EQ(link(0).slot(1), link(1).slot(1));
}

}  // namespace
}  // namespace lockstep::transport
