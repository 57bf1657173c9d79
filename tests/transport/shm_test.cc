// The shared-memory link on its own: large slots, and a peer whose part of the segment is damaged.
#include "transport/shm.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/error.h"

namespace lockstep::transport {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

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
    for (int index = 0; index < kRanks; ++index) {
      hosts_.push_back(std::make_unique<ShmHost>(segment_, index, kRanks));
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
  std::shared_ptr<sys::Segment> segment_ =
      std::make_shared<sys::Segment>(sys::Segment::create("lockstep-test", kRanks* kArena));
  std::vector<std::unique_ptr<ShmHost>> hosts_;
  std::array<Failure, kRanks> failures_;
  std::vector<std::unique_ptr<ShmLink>> links_;
  Exposure nothing_;
};

TEST_F(ShmLinks, WhatTheRingDidNotTakeYetIsUnsent) {
  const std::size_t ring = ring_bytes(kRanks);
  const std::vector<std::byte> sent(3 * ring);
  std::vector<std::byte> into(ring);
  for (int rank = 0; rank < kRanks; ++rank) link(rank).begin(all_reduce(1), nothing_, 0);
  link(0).send(1, sent);
  EXPECT_GE(link(0).unsent(), 2 * ring);
  EXPECT_LT(link(0).unsent(), 3 * ring);
  for (std::size_t left = sent.size(); left > 0; left -= link(1).receive(0, into)) {
    EXPECT_LE(link(0).unsent(), left);
    link(0).end();
  }
  EXPECT_EQ(link(0).unsent(), 0U);
}

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

/// Each rank hears of a failure when the verdict reaches it.
TEST_F(ShmLinks, ARankThatHasFailedIsLeftAloneByThoseThatHaveNotHeardOfIt) {
  for (int rank = 0; rank < kRanks; ++rank) link(rank).begin(all_reduce(1), nothing_, 0);
  ASSERT_TRUE(link(1).enter());
  failures_[0].set({ErrorKind::cancelled, Code::cancelled, "enough"});
  std::atomic<bool> left = false;
  {
    std::jthread fails([&] {
      link(0).quiesce();
      EXPECT_TRUE(left.load()) << "rank 1 was still at the memory of rank 0";
    });
    Gate gate;
    gate.wait([&] { return board_of_1().halted.load() != 0; }, Deadline::after(5s),
              {.yields = INT_MAX});
    left = true;
    link(1).exit();
  }
  EXPECT_FALSE(link(1).failed());
  EXPECT_FALSE(link(1).enter());
  EXPECT_FALSE(link(0).enter());
}

TEST_F(ShmLinks, ARankThatDiedAtTheMemoryOfAnotherIsNotWaitedForLong) {
  for (int rank = 0; rank < kRanks; ++rank) link(rank).begin(all_reduce(1), nothing_, 0);
  ASSERT_TRUE(link(1).enter());
  failures_[0].set({ErrorKind::peer_lost, Code::unavailable, "rank 1 died", {1}});
  const auto begin = std::chrono::steady_clock::now();
  link(0).quiesce();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 500ms);
}

/// It opens its session of the group later, and meets what the other one had begun.
TEST_F(ShmLinks, ARankThatHasFailedIsLeftAloneByThoseThatComeLater) {
  constexpr std::uint64_t kAnother = 78;
  const auto open = [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    return std::make_unique<ShmLink>(*hosts_[at], kAnother, std::vector{0, 1}, std::vector{0, 1},
                                     rank, failures_[at]);
  };
  const auto early = open(0);
  early->begin(all_reduce(1), nothing_, 0);
  early->publish(1);
  failures_[0].set({ErrorKind::cancelled, Code::cancelled, "enough"});
  early->quiesce();
  const auto late = open(1);
  late->begin(all_reduce(1), nothing_, 0);
  ASSERT_TRUE(late->reached(0, 1));
  EXPECT_FALSE(late->enter());
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
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1 shows a stage outside of its memory"));
    }
  }
  stage.store(right);
  EXPECT_EQ(link(0).slot(1), link(1).slot(1));
}

/// Peers read and write each other's buffers where these lie, by what each says of its own.
TEST_F(ShmLinks, ABufferThatIsNotAllInItsRanksMemoryIsRefused) {
  struct Shown {  // as a rank writes it where its board says
    std::uint64_t inputs;
    std::array<std::uint32_t, 256> counts;
    std::uint32_t output;
    struct {
      std::uint64_t offset, begin, end;
    } pieces[2];
  };
  constexpr std::uint64_t kCount = 1000;
  const std::shared_ptr<std::byte> memory = hosts_[1]->allocate(kCount * sizeof(float));
  const Pieces::Piece piece{memory.get(), 0, kCount};
  const Pieces buffer{{&piece, 1}};
  const Exposure both{{&buffer, 1}, buffer};
  std::uint64_t sequence = 0;
  const auto start = [&] {
    ++sequence;
    ASSERT_EQ(link(0).begin(all_reduce(sequence), nothing_, 0), kNobody);
    ASSERT_EQ(link(1).begin(all_reduce(sequence), both, 0), kNobody);
    link(0).publish(1);
    link(1).publish(1);
    ASSERT_TRUE(link(0).reached(1, 1));
  };
  const auto end = [&] {
    ASSERT_EQ(link(0).end(), kNobody);
    ASSERT_EQ(link(1).end(), kNobody);
  };
  start();
  EXPECT_EQ(link(0).exposed(1).output.pieces[0].data, memory.get());
  EXPECT_EQ(link(0).exposed(1).inputs[0].pieces[0].end, kCount);
  end();

  auto& shown = *reinterpret_cast<Shown*>(
      hosts_.front()->at(1, board_of_1().ledger.shown.load(), sizeof(Shown)));
  ASSERT_EQ(shown.pieces[1].end, kCount) << "the layout of what is shown has changed";
  constexpr std::uint64_t kEndOfArena = 2 * kArena;
  const std::vector<std::function<void()>> damages = {
      [&] { shown.pieces[0].offset = kEndOfArena - kCount; },  // in it by elements, not by bytes
      [&] { shown.pieces[1].offset = 4096; },                  // somebody else's arena
      [&] { shown.pieces[0].end = ~std::uint64_t{0}; },
      [&] { shown.pieces[0].end = std::uint64_t{1} << 62; },  // times 4 bytes it is 0
      [&] { shown.pieces[0].begin = 1; },
      [&] { shown.counts[0] = ~std::uint32_t{0}; },
      [&] { shown.output = 5000; },
  };
  for (std::size_t i = 0; i < damages.size(); ++i) {
    start();
    damages[i]();
    EXPECT_THROW(link(0).exposed(1), DataError) << "damage " << i;
    EXPECT_THROW(link(0).exposed(1), DataError) << "damage " << i << ", asked again";
    end();
  }
}

/// Bytes of memory that the segment holds.
std::size_t held_by(const sys::Segment& segment) {
  struct stat file {};
  EXPECT_EQ(::fstat(segment.descriptor(), &file), 0);
  return static_cast<std::size_t>(file.st_blocks) * 512;
}

/// Three ranks of a host that make and close groups, all in this thread.
class ShmGroups : public testing::Test {
 protected:
  ShmGroups() {
    for (int index = 0; index < kRanks; ++index) {
      hosts_.push_back(std::make_unique<ShmHost>(segment_, index, kRanks));
    }
  }
  ShmHost& host(int index) { return *hosts_[static_cast<std::size_t>(index)]; }
  std::unique_ptr<GroupMemory> part(int index, std::uint64_t group, std::size_t bytes = kBytes) {
    return std::make_unique<GroupMemory>(host(index), group, std::vector{0, 1, 2}, bytes);
  }

  static constexpr int kRanks = 3;
  static constexpr std::size_t kBytes = 100'000;
  std::shared_ptr<sys::Segment> segment_ = std::make_shared<sys::Segment>(
      sys::Segment::create("lockstep-test", kRanks*(std::size_t{64} << 20)));
  std::vector<std::unique_ptr<ShmHost>> hosts_;
};

TEST_F(ShmGroups, KeepTheirMemoryUntilTheLastMemberHasClosed) {
  const std::size_t before = held_by(*segment_);
  auto a = part(0, 7);
  auto b = part(1, 7);
  std::memset(b->data(), 5, kBytes);
  const std::byte* const seen = a->find(1, kBytes);
  ASSERT_NE(seen, nullptr);
  b.reset();
  EXPECT_EQ(seen[kBytes - 1], std::byte{5}) << "a member still reads it";
  auto c = part(2, 7);  // late, and finds both all the same
  EXPECT_EQ(c->find(1, kBytes), seen);
  EXPECT_EQ(c->find(0, kBytes), a->data());
  a.reset();
  c.reset();
  for (int index = 0; index < kRanks; ++index) host(index).allocate(1);  // looks
  EXPECT_EQ(held_by(*segment_), before);
}

/// Twice as many as there is room for at once, by members that are not in step.
TEST_F(ShmGroups, LeaveTheirPlaceToOthers) {
  std::vector<std::unique_ptr<GroupMemory>> late;
  for (std::uint64_t group = 1; group <= 2 * ShmHost::kMostGroups; ++group) {
    auto a = part(0, group, 1);
    late.push_back(part(1, group, 1));
    auto c = part(2, group, 1);
    ASSERT_EQ(a->find(1, 1), late.back()->data()) << group;
    ASSERT_EQ(late.back()->find(2, 1), c->data()) << group;
    a.reset();
    if (late.size() == 50) late.clear();
  }
  late.clear();
  EXPECT_EQ(host(0).find(1, 1, 1), nullptr) << "it was closed by all";
}

TEST_F(ShmGroups, AreNotKeptForARankThatHasLeft) {
  auto a = part(0, 7);
  const std::size_t with_it = held_by(*segment_);
  host(1).leave();
  host(2).leave();
  a.reset();
  EXPECT_LE(held_by(*segment_) + kBytes, with_it);
}

/// The others may be in the middle of its last operation.
TEST_F(ShmGroups, StayWhenARankClosesItsGroupsAndGoes) {
  auto a = part(0, 7);
  auto b = part(1, 7);
  std::memset(b->data(), 5, kBytes);
  const std::byte* const seen = a->find(1, kBytes);
  b.reset();
  host(1).leave();
  hosts_[1].reset();
  EXPECT_EQ(seen[kBytes - 1], std::byte{5});
}

TEST_F(ShmGroups, MoreThanThereIsRoomForAreRefused) {
  std::vector<std::unique_ptr<GroupMemory>> parts;
  for (std::uint64_t group = 1; group <= ShmHost::kMostGroups; ++group) {
    parts.push_back(part(0, group, 1));
  }
  try {
    parts.push_back(part(0, 5000, 1));
    ADD_FAILURE() << "it was taken";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr("1024 groups at once; close sessions"));
    EXPECT_EQ(error.code(), Code::resource_exhausted);
  }
}

/// Each by itself would find enough, and the system would end them all.
TEST_F(ShmGroups, WhatAnotherRankIsAboutToTakeIsNotFree) {
  const std::size_t free = sys::free_memory();
  ASSERT_NE(free, SIZE_MAX) << "the system does not say what is free";
  {
    ShmHost::Claim claim(host(1));
    claim.set(free);
    try {
      (void)host(0).allocate(1);
      ADD_FAILURE() << "it was given";
    } catch (const SystemError& error) {
      EXPECT_EQ(error.code(), Code::resource_exhausted);
      EXPECT_THAT(error.what(), HasSubstr("and other ranks of this host are taking"));
    }
    claim.set(1);
    EXPECT_NE(host(0).allocate(1), nullptr);
    claim.set(free);
  }
  EXPECT_NE(host(0).allocate(1), nullptr);
}

TEST_F(ShmGroups, WhatARankWasAboutToTakeWhenItDiedIsFree) {
  const std::size_t free = sys::free_memory();
  ASSERT_NE(free, SIZE_MAX) << "the system does not say what is free";
  int claimed[2] = {-1, -1};
  ASSERT_EQ(::pipe(claimed), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ShmHost own(segment_, 2, kRanks);
    ShmHost::Claim claim(own);
    claim.set(free);
    (void)!::write(claimed[1], "", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(claimed[0], &byte, 1), 1);
  EXPECT_THROW((void)host(0).allocate(1), SystemError);
  ::kill(child, SIGKILL);
  siginfo_t how{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &how, WEXITED | WNOWAIT), 0);
  EXPECT_NE(host(0).allocate(1), nullptr) << "though nobody has waited for it";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_NE(host(0).allocate(1), nullptr);
  ::close(claimed[0]);
  ::close(claimed[1]);
}

/// A ring has memory for what was sent.
TEST_F(ShmLinks, MessagesTakeTheMemoryTheyNeed) {
  for (int rank = 0; rank < kRanks; ++rank) link(rank).begin(all_reduce(1), nothing_, 0);
  const std::size_t before = held_by(*segment_);
  std::vector<std::byte> bytes(100);
  link(0).send(1, bytes);
  EXPECT_EQ(link(1).receive(0, bytes), bytes.size());
  EXPECT_LE(held_by(*segment_) - before, std::size_t{20} << 10);
  std::vector<std::byte> more(ring_bytes(kRanks) + 1000, std::byte{9});
  link(0).send(1, more);
  std::vector<std::byte> got(more.size());
  for (std::size_t at = 0; at < got.size(); link(0).end()) {
    at += link(1).receive(0, std::span(got).subspan(at));
  }
  EXPECT_EQ(got, more);
  EXPECT_LE(held_by(*segment_) - before, ring_bytes(kRanks) + 8192);
}

}  // namespace
}  // namespace lockstep::transport
