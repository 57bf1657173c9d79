// Joining in one process: each rank is a thread with a network of its own that counts what it does.
#include "coll/joiner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "sys/posix_net.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep::coll {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

struct Counts {
  std::atomic<int> waits = 0;
  std::atomic<std::int64_t> written = 0;
};

class CountingConnection final : public sys::Connection {
 public:
  CountingConnection(std::unique_ptr<sys::Connection> inner, std::shared_ptr<Counts> counts)
      : inner_(std::move(inner)), counts_(std::move(counts)) {}
  sys::Transfer read(std::span<std::byte> into) noexcept override { return inner_->read(into); }
  sys::Transfer write(std::span<const std::byte> from) noexcept override {
    const sys::Transfer moved = inner_->write(from);
    counts_->written += static_cast<std::int64_t>(moved.bytes);
    return moved;
  }
  void shutdown_write() noexcept override { inner_->shutdown_write(); }
  [[nodiscard]] Status error() const override { return inner_->error(); }
  [[nodiscard]] std::string peer() const override { return inner_->peer(); }
  [[nodiscard]] bool is_open() const noexcept override { return inner_->is_open(); }
  [[nodiscard]] sys::Connection& underlying() noexcept override { return inner_->underlying(); }

 private:
  std::unique_ptr<sys::Connection> inner_;
  std::shared_ptr<Counts> counts_;
};

class CountingListener final : public sys::Listener {
 public:
  CountingListener(std::unique_ptr<sys::Listener> inner, std::shared_ptr<Counts> counts)
      : inner_(std::move(inner)), counts_(std::move(counts)) {}
  std::unique_ptr<sys::Connection> accept() override {
    auto connection = inner_->accept();
    if (!connection) return nullptr;
    return std::make_unique<CountingConnection>(std::move(connection), counts_);
  }
  [[nodiscard]] std::string address() const override { return inner_->address(); }
  [[nodiscard]] sys::Listener& inner() noexcept { return *inner_; }

 private:
  std::unique_ptr<sys::Listener> inner_;
  std::shared_ptr<Counts> counts_;
};

class CountingPoller final : public sys::Poller {
 public:
  CountingPoller(std::unique_ptr<sys::Poller> inner, std::shared_ptr<Counts> counts)
      : inner_(std::move(inner)), counts_(std::move(counts)) {}
  void watch(sys::Connection& connection, Interest interest) override {
    inner_->watch(connection, interest);
  }
  void watch(sys::Listener& listener) override {
    inner_->watch(dynamic_cast<CountingListener&>(listener).inner());
  }
  void forget(sys::Connection& connection) noexcept override { inner_->forget(connection); }
  void forget(sys::Listener& listener) noexcept override {
    inner_->forget(dynamic_cast<CountingListener&>(listener).inner());
  }
  [[nodiscard]] std::span<sys::Connection* const> ready() const noexcept override {
    return inner_->ready();
  }
  bool wait(Deadline deadline) override {
    ++counts_->waits;
    return inner_->wait(deadline);
  }
  void wake() noexcept override { inner_->wake(); }

 private:
  std::unique_ptr<sys::Poller> inner_;
  std::shared_ptr<Counts> counts_;
};

class CountingNetwork final : public sys::Network {
 public:
  explicit CountingNetwork(std::shared_ptr<Counts> counts) : counts_(std::move(counts)) {}
  std::unique_ptr<sys::Listener> listen(const std::string& address) override {
    return std::make_unique<CountingListener>(inner_.listen(address), counts_);
  }
  std::unique_ptr<sys::Connection> connect(const std::string& address) override {
    return std::make_unique<CountingConnection>(inner_.connect(address), counts_);
  }
  std::unique_ptr<sys::Poller> poller() override {
    return std::make_unique<CountingPoller>(inner_.poller(), counts_);
  }

 private:
  sys::PosixNetwork inner_;
  std::shared_ptr<Counts> counts_;
};

class Joiners : public testing::Test {
 protected:
  struct Rank {
    std::shared_ptr<Counts> counts = std::make_shared<Counts>();
    std::atomic<std::uint64_t> generation = 0;
    std::shared_ptr<Presence> presence;  // null: it has not joined
    Status failure;
  };

  /// Lets these ranks of so many join, each on a thread; returns when all have or have failed.
  void join(int size, const std::vector<int>& present, std::chrono::milliseconds timeout) {
    std::vector<std::string> addresses;
    for (int rank = 0; rank < size; ++rank) {
      addresses.push_back(fmt::format("unix:{}/{}", directory_.path(), rank));
      ranks_.push_back(std::make_unique<Rank>());
    }
    std::vector<std::jthread> threads;
    for (const int rank : present) {
      threads.emplace_back([this, addresses, rank, timeout] {
        Rank& own = *ranks_[static_cast<std::size_t>(rank)];
        JoiningProcess process{.network = std::make_unique<CountingNetwork>(own.counts),
                               .pid = 4000 + static_cast<std::uint32_t>(rank),
                               .host = 100,
                               .host_name = "node",
                               .incarnation = 1 + static_cast<std::uint64_t>(rank),
                               .generation = &own.generation};
        try {
          own.presence =
              Joiner({.addresses = addresses, .rank = rank, .timeout = timeout}, std::move(process))
                  .run()
                  .presence;
        } catch (...) {
          own.failure = Status::from_current_exception();
        }
      });
    }
  }
  ~Joiners() override {
    for (const auto& rank : ranks_) {
      if (rank->presence) rank->presence->leave();
    }
  }
  Rank& rank(int which) { return *ranks_[static_cast<std::size_t>(which)]; }

  TemporaryDirectory directory_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST_F(Joiners, ARankThatWaitsForOthersSleeps) {
  join(3, {0, 1}, 500ms);
  for (const int present : {0, 1}) {
    EXPECT_EQ(rank(present).failure.kind(), ErrorKind::timeout);
    EXPECT_LT(rank(present).counts->waits, 40) << "rank " << present;
  }
}

/// It calls again and again.
TEST_F(Joiners, ARankThatWaitsForRankZeroSleepsBetweenItsCalls) {
  join(2, {1}, 500ms);
  EXPECT_EQ(rank(1).failure.kind(), ErrorKind::timeout);
  EXPECT_LT(rank(1).counts->waits, 40);
}

/// Rank 0 sends what it knows of every rank to every rank: what it sends grows with their square.
TEST_F(Joiners, WhatRankZeroSendsIsSmall) {
  constexpr int kRanks = 24;
  std::vector<int> all(kRanks);
  for (int i = 0; i < kRanks; ++i) all[static_cast<std::size_t>(i)] = i;
  join(kRanks, all, 20s);
  for (const int each : all) {
    ASSERT_NE(rank(each).presence, nullptr) << rank(each).failure.message();
    EXPECT_EQ(rank(each).presence->roster().members.size(), kRanks);
    EXPECT_EQ(rank(each).presence->roster().at(5).pid, 4005U);
  }
  // To each other rank: an acknowledgement, a row for each rank, and that it may start.
  EXPECT_LT(rank(0).counts->written, (kRanks - 1) * (kRanks * 48 + 512));
}

}  // namespace
}  // namespace lockstep::coll
