#include "transport/ring_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "sys/posix_net.h"
#include "sys/posix_socket.h"
#include "transport/host_rings.h"

namespace lockstep::transport {
namespace {

using namespace std::chrono_literals;
using sys::Interest;
using sys::Transfer;
using State = sys::Transfer::State;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kCapacity = 256;
constexpr std::byte kGuard{0xA5};

Bytes pattern(std::size_t size, std::size_t from = 0) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(((from + i) * 131 + (from + i) / 251) & 0xFF);
  }
  return bytes;
}

/// Memory of a channel between two stretches that nobody may touch.
class Fenced {
 public:
  static constexpr std::size_t kFence = 4096;

  explicit Fenced(std::size_t capacity = kCapacity)
      : capacity_(capacity), lines_((2 * kFence + Channel::bytes(capacity)) / sizeof(Line)) {
    std::memset(lines_.data(), static_cast<int>(kGuard), lines_.size() * sizeof(Line));
    std::memset(memory(), 0, Channel::bytes(capacity));
  }
  std::byte* memory() { return lines_.front().bytes + kFence; }
  Channel channel() { return {memory(), capacity_}; }
  bool intact() {
    const auto whole = [](const std::byte* at) {
      return std::all_of(at, at + kFence, [](std::byte b) { return b == kGuard; });
    };
    return whole(memory() - kFence) && whole(memory() + Channel::bytes(capacity_));
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::size_t capacity_;
  std::vector<Line> lines_;
};

/// Two ends, a and b.
class Rings : public testing::Test {
 protected:
  void SetUp() override {
    int fds[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    const auto end = [&](int which, Fenced& out, Fenced& in, const bool& there) {
      return std::make_unique<RingConnection>(
          std::make_unique<sys::PosixConnection>(sys::Descriptor(fds[which]), "pair"),
          out.channel(), [&]() -> std::optional<Channel> {
            if (!there) return std::nullopt;
            return in.channel();
          });
    };
    a_ = end(0, to_b_, to_a_, b_is_there_);
    b_ = end(1, to_a_, to_b_, a_is_there_);
  }
  /// Wake-ups that wait for this end.
  static int calls(RingConnection& end) {
    std::array<std::byte, 256> bytes;
    const auto got = ::recv(dynamic_cast<sys::PosixConnection&>(end.underlying()).fd(),
                            bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    return static_cast<int>(std::max<ssize_t>(got, 0));
  }
  static Bytes read(RingConnection& end, std::size_t most = 4096) {
    Bytes bytes(most);
    bytes.resize(end.read(bytes).bytes);
    return bytes;
  }
  /// As often as it takes to look at the socket.
  static State read_state(RingConnection& end) {
    std::array<std::byte, 8> into;
    Transfer last;
    for (int i = 0; i < 1000 && last.state == State::open; ++i) last = end.read(into);
    return last.state;
  }

  Fenced to_a_;
  Fenced to_b_;
  bool a_is_there_ = true;
  bool b_is_there_ = true;
  std::unique_ptr<RingConnection> a_;
  std::unique_ptr<RingConnection> b_;
};

TEST_F(Rings, MoveBytesBothWays) {
  EXPECT_EQ(a_->write(pattern(100)).bytes, 100U);
  EXPECT_EQ(b_->write(pattern(50, 7)).bytes, 50U);
  EXPECT_EQ(read(*b_), pattern(100));
  EXPECT_EQ(read(*a_), pattern(50, 7));
  EXPECT_TRUE(read(*a_).empty());
}

TEST_F(Rings, TakeWhatFits) {
  EXPECT_EQ(a_->write(pattern(1000)).bytes, kCapacity);
  EXPECT_EQ(a_->write(pattern(10)).bytes, 0U);
  EXPECT_EQ(read(*b_, 100), pattern(100));
  EXPECT_EQ(a_->write(pattern(1000, kCapacity)).bytes, 100U);
  EXPECT_EQ(read(*b_), pattern(kCapacity, 100));
}

TEST_F(Rings, TwoPiecesAreOne) {
  const Bytes all = pattern(400);
  const std::span<const std::byte> bytes(all);
  EXPECT_EQ(a_->write_both(bytes.first(30), bytes.subspan(30, 20)).bytes, 50U);
  EXPECT_EQ(a_->write_both(bytes.subspan(50, 40), bytes.subspan(90)).bytes, kCapacity - 50);
  EXPECT_EQ(a_->write_both(bytes.first(3), bytes.first(3)).bytes, 0U);
  EXPECT_EQ(read(*b_), pattern(kCapacity));
  // A first piece that does not fit is cut, and nothing of the second goes before the rest of it.
  EXPECT_EQ(a_->write(pattern(kCapacity - 5)).bytes, kCapacity - 5);
  EXPECT_EQ(a_->write_both(bytes.first(30), bytes.subspan(30)).bytes, 5U);
}

TEST_F(Rings, AnyCutsOnBothSides) {
  std::mt19937 random(20);
  std::size_t sent = 0;
  std::size_t got = 0;
  while (got < 100'000) {
    sent += a_->write(pattern(random() % 400, sent)).bytes;
    const Bytes part = read(*b_, random() % 400);
    ASSERT_EQ(part, pattern(part.size(), got));
    got += part.size();
  }
}

TEST_F(Rings, OnlyWhoSleepsIsWoken) {
  EXPECT_EQ(a_->write(pattern(1)).bytes, 1U);
  EXPECT_EQ(calls(*b_), 1);  // the first bytes always do
  for (int i = 0; i < 100; ++i) {
    (void)a_->write(pattern(10));
    (void)read(*b_);
  }
  EXPECT_EQ(calls(*b_), 1);
  EXPECT_EQ(calls(*a_), 1);  // the first room did
  EXPECT_EQ(b_->before_wait(Interest::read), Interest::read);
  EXPECT_EQ(calls(*b_), 0);
  for (int i = 0; i < 3; ++i) (void)a_->write_both(pattern(10), pattern(20));
  EXPECT_EQ(calls(*b_), 1);
}

TEST_F(Rings, AWriterIsWokenWhenThereIsRoom) {
  EXPECT_EQ(a_->before_wait(Interest::write), std::nullopt);  // there is
  (void)a_->write(pattern(1000));
  EXPECT_EQ(a_->before_wait(Interest::write), Interest::read);
  EXPECT_EQ(a_->before_wait(Interest::read_write), Interest::read);
  EXPECT_EQ(calls(*a_), 0);
  (void)read(*b_, 1);
  EXPECT_EQ(calls(*a_), 1);
  EXPECT_EQ(a_->before_wait(Interest::write), std::nullopt);
}

TEST_F(Rings, NobodySleepsWhoCanGoOn) {
  (void)a_->write(pattern(1));
  EXPECT_EQ(b_->before_wait(Interest::read), std::nullopt);
  EXPECT_EQ(b_->before_wait(Interest::write), std::nullopt);
  (void)read(*b_);
  EXPECT_EQ(b_->before_wait(Interest::read), Interest::read);
  a_->shutdown_write();
  EXPECT_EQ(b_->before_wait(Interest::read), std::nullopt);
}

TEST_F(Rings, APeerThatHasNotMadeItsChannelIsWaitedFor) {
  a_is_there_ = false;
  EXPECT_TRUE(read(*b_).empty());
  EXPECT_EQ(b_->before_wait(Interest::read), Interest::read);
  EXPECT_EQ(calls(*b_), 0);
  a_is_there_ = true;
  (void)a_->write(pattern(9));
  EXPECT_EQ(calls(*b_), 1);  // though it could not say that it sleeps
  EXPECT_EQ(read(*b_), pattern(9));
}

TEST_F(Rings, AnOrderlyEndComesAfterTheBytes) {
  (void)a_->write(pattern(60));
  a_->shutdown_write();
  a_->shutdown_write();
  EXPECT_EQ(a_->write(pattern(1)).state, State::broken);
  EXPECT_FALSE(a_->error().ok());
  EXPECT_EQ(read(*b_), pattern(60));
  EXPECT_EQ(read_state(*b_), State::closed);
  // The other direction goes on, wake-ups included.
  (void)b_->write(pattern(1000));
  EXPECT_EQ(b_->before_wait(Interest::write), Interest::read);
  EXPECT_EQ(read(*a_), pattern(kCapacity));
  EXPECT_EQ(calls(*b_), 1);
}

TEST_F(Rings, ADeadPeerIsTheEndAfterItsBytes) {
  (void)a_->write(pattern(60));
  a_.reset();
  EXPECT_EQ(b_->before_wait(Interest::read), std::nullopt);
  EXPECT_EQ(read(*b_), pattern(60));
  EXPECT_NE(read_state(*b_), State::open);
  EXPECT_EQ(b_->write(pattern(1)).state, State::broken);
  EXPECT_FALSE(b_->error().ok());
}

TEST_F(Rings, ADeadReaderIsNoticedByWhoNeedsRoom) {
  (void)a_->write(pattern(1000));
  b_.reset();
  Transfer last;
  for (int i = 0; i < 1000 && last.state == State::open; ++i) last = a_->write(pattern(1));
  EXPECT_EQ(last.state, State::broken);
}

/// Whatever stands in the shared memory, nothing outside of it is read or written.
TEST_F(Rings, GarbageFromAPeerLeadsNowhereElse) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 3'000; ++round) {
    // A word of the flags and positions, of the stream to us or of ours, as a peer could write it.
    Fenced& which = round % 2 == 0 ? to_a_ : to_b_;
    const std::size_t word = random() % ((Channel::bytes(kCapacity) - kCapacity) / 8);
    const std::uint64_t value = random() >> (random() % 64);
    std::memcpy(which.memory() + word * 8, &value, sizeof(value));
    Bytes into(600, kGuard);
    const std::size_t most = random() % into.size();
    const Transfer got = a_->read(std::span(into).first(most));
    ASSERT_LE(got.bytes, most);
    // The rings hold zeros and ones: what looks like the fence was read there.
    const auto end = into.begin() + static_cast<std::ptrdiff_t>(got.bytes);
    ASSERT_EQ(std::count(into.begin(), end, kGuard), 0) << "round " << round;
    ASSERT_EQ(std::count(end, into.end(), kGuard), into.end() - end) << "round " << round;
    ASSERT_LE(a_->write(Bytes(random() % 600, std::byte{1})).bytes, kCapacity);
    (void)a_->before_wait(Interest::read_write);
    (void)b_->before_wait(Interest::read);  // takes the calls
    ASSERT_TRUE(to_a_.intact() && to_b_.intact()) << "round " << round;
  }
}

/// One end of a stream in both directions, on a thread of its own, that sleeps whenever it can: a
/// wake-up that gets lost is a wait that ends at its deadline.
int stream(RingConnection& end, std::size_t total, unsigned seed) {
  const auto poller = sys::PosixNetwork().poller();
  std::mt19937 random(seed);
  std::size_t sent = 0;
  std::size_t got = 0;
  int lost = 0;
  while ((sent < total || got < total) && lost == 0) {
    const std::size_t before = sent + got;
    if (sent < total) {
      const Bytes part = pattern(std::min<std::size_t>(random() % 700, total - sent), sent);
      sent += end.write(part).bytes;
    }
    Bytes into(random() % 700);
    const std::size_t now = end.read(into).bytes;
    into.resize(now);
    if (into != pattern(now, got)) return -1;
    got += now;
    if (sent + got > before) continue;
    const Interest wanted = sent == total  ? Interest::read
                            : got == total ? Interest::write
                                           : Interest::read_write;
    const auto watched = end.before_wait(wanted);
    if (!watched) continue;
    poller->watch(end, *watched);
    if (!poller->wait(Deadline::after(20s))) ++lost;
  }
  poller->forget(end);
  return lost;
}

TEST_F(Rings, NoWakeUpIsLost) {
  constexpr std::size_t kTotal = 1'000'000;
  int lost_at_b = 0;
  std::thread other([&] { lost_at_b = stream(*b_, kTotal, 1); });
  EXPECT_EQ(stream(*a_, kTotal, 2), 0);
  other.join();
  EXPECT_EQ(lost_at_b, 0);
}

/// Three ranks of a host, as threads of one process.
class OnAHost : public testing::Test {
 protected:
  void SetUp() override {
    for (int index = 0; index < kRanks; ++index) {
      hosts_.push_back(std::make_shared<ShmHost>(segment_, index, kRanks));
    }
  }
  /// A rank's rings in the group of all.
  [[nodiscard]] HostRings rings(int index) const {
    return {hosts_[static_cast<std::size_t>(index)], kGroup, {0, 1, 2}};
  }
  static std::pair<std::unique_ptr<sys::Connection>, std::unique_ptr<sys::Connection>> sockets() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    return {std::make_unique<sys::PosixConnection>(sys::Descriptor(fds[0]), "near"),
            std::make_unique<sys::PosixConnection>(sys::Descriptor(fds[1]), "far")};
  }

  /// Bytes of memory that the segment holds.
  [[nodiscard]] std::size_t held() const {
    struct stat file {};
    EXPECT_EQ(::fstat(segment_->descriptor(), &file), 0);
    return static_cast<std::size_t>(file.st_blocks) * 512;
  }

  static constexpr int kRanks = 3;
  static constexpr std::size_t kArena = std::size_t{16} << 20;
  static constexpr std::uint64_t kGroup = 77;
  std::shared_ptr<sys::Segment> segment_ =
      std::make_shared<sys::Segment>(sys::Segment::create("lockstep-test", kRanks* kArena));
  std::vector<std::shared_ptr<ShmHost>> hosts_;
};

TEST_F(OnAHost, EveryPairHasItsOwnRings) {
  const std::array all{rings(0), rings(1), rings(2)};
  std::array<std::array<std::unique_ptr<sys::Connection>, kRanks>, kRanks> ends;
  for (int a = 0; a < kRanks; ++a) {
    for (int b = a + 1; b < kRanks; ++b) {
      auto [near, far] = sockets();
      ends[a][b] = all[a].connect(b, std::move(near));
      ends[b][a] = all[b].connect(a, std::move(far));
    }
  }
  // All write before anybody reads: a place that two pairs share would show.
  const auto sent = [](int from, int to) {
    return pattern(10'000, std::size_t{1000} * static_cast<std::size_t>(10 * from + to));
  };
  for (int a = 0; a < kRanks; ++a) {
    for (int b = 0; b < kRanks; ++b) {
      if (a == b) continue;
      ASSERT_EQ(ends[a][b]->write(sent(a, b)).bytes, 10'000U);
    }
  }
  for (int a = 0; a < kRanks; ++a) {
    for (int b = 0; b < kRanks; ++b) {
      if (a == b) continue;
      Bytes got(20'000);
      got.resize(ends[b][a]->read(got).bytes);
      EXPECT_EQ(got, sent(a, b)) << "from " << a << " to " << b;
    }
  }
}

TEST_F(OnAHost, BytesWaitForAPeerThatComesLater) {
  auto [near, far] = sockets();
  const auto early = rings(0).connect(1, std::move(near));
  EXPECT_EQ(early->write(pattern(500)).bytes, 500U);
  std::array<std::byte, 8> into;
  EXPECT_EQ(early->read(into).bytes, 0U);  // rank 1 has no rings yet
  const auto late = rings(1).connect(0, std::move(far));
  Bytes got(1000);
  got.resize(late->read(got).bytes);
  EXPECT_EQ(got, pattern(500));
  EXPECT_EQ(late->write(pattern(3)).bytes, 3U);
  EXPECT_EQ(early->read(into).bytes, 3U);
}

TEST_F(OnAHost, AChannelTakesTheMemoryItNeeds) {
  auto [near, far] = sockets();
  const auto a = rings(0).connect(1, std::move(near));
  const auto b = rings(1).connect(0, std::move(far));
  const std::size_t before = held();
  std::size_t sent = 0;
  Bytes got(1 << 20);
  const auto pass = [&](std::size_t size) {
    const std::size_t moved = a->write(pattern(size, sent)).bytes;
    ASSERT_GT(moved, 0U);
    ASSERT_EQ(b->read(std::span(got).first(moved)).bytes, moved);
    ASSERT_EQ(Bytes(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(moved)),
              pattern(moved, sent));
    sent += moved;
  };
  pass(100);
  EXPECT_EQ(held(), before) << "both ends have 16 KiB from the start";
  EXPECT_LE(before, std::size_t{160} << 10) << "of two ranks";
  for (int i = 0; i < 300; ++i) pass(1000);
  pass(1 << 20);  // as much as fits
  EXPECT_LE(held(), before + ring_bytes(kRanks));
}

TEST_F(OnAHost, ConnectionsOutliveWhatMadeThem) {
  auto [near, far] = sockets();
  const auto a = rings(0).connect(1, std::move(near));
  const auto b = rings(1).connect(0, std::move(far));
  hosts_.clear();
  EXPECT_EQ(a->write(pattern(100)).bytes, 100U);
  Bytes got(100);
  EXPECT_EQ(b->read(got).bytes, 100U);
  EXPECT_EQ(got, pattern(100));
}

}  // namespace
}  // namespace lockstep::transport
