#include "coll/presence.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

#include "sys/posix_net.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep::coll {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kNobody = -1;

enum class Trouble : std::uint8_t { none, bug, memory };

/// A poller that throws once it is told to.
class TroubledPoller final : public sys::Poller {
 public:
  TroubledPoller(std::unique_ptr<sys::Poller> inner, std::shared_ptr<std::atomic<Trouble>> troubled)
      : inner_(std::move(inner)), troubled_(std::move(troubled)) {}
  void watch(sys::Connection& connection, Interest interest) override {
    inner_->watch(connection, interest);
  }
  void watch(sys::Listener& listener) override { inner_->watch(listener); }
  void forget(sys::Connection& connection) noexcept override { inner_->forget(connection); }
  void forget(sys::Listener& listener) noexcept override { inner_->forget(listener); }
  bool wait(Deadline deadline) override {
    if (troubled_->load() == Trouble::bug) throw std::runtime_error("a bug in a thread");
    if (troubled_->load() == Trouble::memory) throw std::bad_alloc();
    return inner_->wait(deadline);
  }
  [[nodiscard]] std::span<sys::Connection* const> ready() const noexcept override {
    return inner_->ready();
  }
  void wake() noexcept override { inner_->wake(); }

 private:
  std::unique_ptr<sys::Poller> inner_;
  std::shared_ptr<std::atomic<Trouble>> troubled_;
};

class TroubledNetwork final : public sys::Network {
 public:
  explicit TroubledNetwork(std::shared_ptr<std::atomic<Trouble>> troubled)
      : troubled_(std::move(troubled)) {}
  std::unique_ptr<sys::Listener> listen(const std::string& address) override {
    return inner_.listen(address);
  }
  std::unique_ptr<sys::Connection> connect(const std::string& address) override {
    return inner_.connect(address);
  }
  std::unique_ptr<sys::Poller> poller() override {
    return std::make_unique<TroubledPoller>(inner_.poller(), troubled_);
  }

 private:
  sys::PosixNetwork inner_;
  std::shared_ptr<std::atomic<Trouble>> troubled_;
};

/// Ranks of one process, connected by sockets as those of several are.
class Presences : public testing::Test {
 protected:
  void start(int size, int troubled, const Timing& timing = {},
             Duration last_word = std::chrono::seconds(5)) {
    sys::PosixNetwork network;
    std::vector<std::vector<std::unique_ptr<sys::Connection>>> mesh(static_cast<std::size_t>(size));
    for (auto& row : mesh) row.resize(static_cast<std::size_t>(size));
    for (int low = 0; low < size; ++low) {
      const auto listener = network.listen(fmt::format("unix:{}/{}", directory_.path(), low));
      for (const int high : control_peers(low, size)) {
        if (high < low) continue;
        auto& called = mesh[static_cast<std::size_t>(high)][static_cast<std::size_t>(low)];
        auto& accepted = mesh[static_cast<std::size_t>(low)][static_cast<std::size_t>(high)];
        called = network.connect(listener->address());
        while (!accepted) accepted = listener->accept();
      }
    }
    Roster roster;
    roster.generation = 1;
    for (int rank = 0; rank < size; ++rank) {
      auto& member = roster.members.emplace_back();
      member.rank = rank;
      member.size = size;
      member.pid = 4711;
      member.set_host_name("node");
      member.set_address("nowhere:1");
    }
    for (int rank = 0; rank < size; ++rank) {
      Presence::Setup setup;
      setup.roster = roster;
      setup.roster.rank = rank;
      if (rank == troubled) {
        setup.network = std::make_unique<TroubledNetwork>(troubled_);
      } else {
        setup.network = std::make_unique<sys::PosixNetwork>();
      }
      const auto door = [directory = directory_.path()](int which) {
        return fmt::format("unix:{}/door{}", directory, which);
      };
      setup.doors.push_back(std::make_unique<Door>(*setup.network, door(rank)));
      setup.connect_control = [door, rank, its = setup.network.get(), gate = gate_,
                               calls = calls_](int which) {
        auto connection = its->connect(door(which));
        (*calls)[static_cast<std::size_t>(rank)] |= 1U << static_cast<unsigned>(which);
        gate->notify();
        return connection;
      };
      setup.control = std::move(mesh[static_cast<std::size_t>(rank)]);
      setup.timing = timing;
      setup.last_word = last_word;
      setup.wake = [gate = gate_] { gate->notify(); };
      presences_.push_back(std::make_shared<Presence>(std::move(setup)));
      presences_.back()->start();
    }
  }
  ~Presences() override { stop(); }
  void stop() {
    for (const auto& presence : presences_) presence->leave();
    presences_.clear();
  }
  bool all_have_failed(Deadline deadline) {
    return gate_->wait(
        [&] {
          return std::all_of(presences_.begin(), presences_.end(),
                             [](const auto& each) { return each->failure().raised(); });
        },
        deadline);
  }

  TemporaryDirectory directory_;
  // The ranks' threads outlive the test.
  std::shared_ptr<std::atomic<Trouble>> troubled_ =
      std::make_shared<std::atomic<Trouble>>(Trouble::none);
  /// By rank: the ranks that it has called, as bits.
  std::shared_ptr<std::array<std::atomic<unsigned>, 8>> calls_ =
      std::make_shared<std::array<std::atomic<unsigned>, 8>>();
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::vector<std::shared_ptr<Presence>> presences_;
};

// A22: long before the others would miss its pulse.
TEST_F(Presences, AnExceptionInTheControlThreadEndsTheGenerationEverywhere) {
  for (const int troubled : {0, 2}) {
    start(4, troubled);
    troubled_->store(Trouble::bug);
    ASSERT_TRUE(all_have_failed(Deadline::after(2s)));
    for (const auto& presence : presences_) {
      const Status why = presence->failure().cause();
      EXPECT_EQ(why.kind(), ErrorKind::internal) << why.message();
      EXPECT_EQ(why.code(), Code::internal);
      EXPECT_THAT(why.culprits(), ElementsAre(troubled));
      EXPECT_THAT(why.message(), HasSubstr("a bug in a thread"));
      EXPECT_THAT(why.message(), HasSubstr(fmt::format("rank {} (pid 4711 on node)", troubled)));
    }
    stop();
    troubled_->store(Trouble::none);
  }
}

// A program may close its session and keep the object while others go on in a subgroup.
TEST_F(Presences, ARankThatHasLeftIsNotTakenForDead) {
  constexpr auto kDead = 800ms;
  start(4, kNobody, {.pulse = 50ms, .suspect = 400ms, .dead = kDead}, 50ms);
  presences_[2]->leave();
  EXPECT_FALSE(gate_->wait(
      [&] {
        return std::any_of(presences_.begin(), presences_.end(),
                           [](const auto& each) { return each->failure().raised(); });
      },
      Deadline::after(3 * kDead)))
      << presences_[1]->failure().cause().message();
  // It still passes on what the others say.
  presences_[3]->failure().report({ErrorKind::cancelled, Code::cancelled, "enough", {3}});
  EXPECT_TRUE(all_have_failed(Deadline::after(2s)));
}

TEST_F(Presences, AControlThreadWithoutMemoryNamesItsRank) {
  start(4, 2);
  troubled_->store(Trouble::memory);
  ASSERT_TRUE(all_have_failed(Deadline::after(2s)));
  for (const auto& presence : presences_) {
    const Status why = presence->failure().cause();
    EXPECT_EQ(why.kind(), ErrorKind::system_error) << why.message();
    EXPECT_EQ(why.code(), Code::resource_exhausted);
    EXPECT_THAT(why.culprits(), ElementsAre(2));
    EXPECT_THAT(why.message(), HasSubstr("rank 2: out of memory"));
  }
  stop();
  troubled_->store(Trouble::none);
}

// Rank 1 decides in its place, over connections that the others have opened to it.
TEST_F(Presences, RanksThatStayConnectToRankZerosSuccessor) {
  start(6, kNobody);
  presences_[0]->leave();
  presences_[3]->leave();
  // To the lowest that has not left, and over the gap in the ring.
  const auto have_called = [&] {
    return (*calls_)[4] == (1U << 1U | 1U << 2U) && (*calls_)[5] == 1U << 1U;
  };
  EXPECT_TRUE(gate_->wait(have_called, Deadline::after(5s)));
  presences_[5]->failure().report({ErrorKind::cancelled, Code::cancelled, "enough", {5}});
  ASSERT_TRUE(all_have_failed(Deadline::after(2s)));
  for (const auto& presence : presences_) {
    EXPECT_EQ(presence->failure().cause().message(), "enough");
  }
}

}  // namespace
}  // namespace lockstep::coll
