// Controls: control planes of several ranks on a simulated network, polled in virtual time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coll/control.h"
#include "lockstep/log.h"
#include "tests/sim_cluster/late_connections.h"
#include "tests/sim_cluster/mesh.h"

namespace lockstep::coll {

/// What telling everybody may take.
inline constexpr auto kTprop = std::chrono::milliseconds(100);

inline wire::Descriptor barrier(std::uint64_t sequence) {
  wire::Descriptor d;
  d.sequence = sequence;
  d.kind = 8;
  return d;
}

class Controls : public testing::Test {
 protected:
  struct Rank {
    transport::Failure failure;
    transport::History history;
    std::unique_ptr<Control> control;
    Time paused_until{};
    bool running = true;
    std::optional<Time> failed_at;
  };

  ~Controls() override { set_log_sink({}); }

  void start(int size, sim::LinkOptions links = {.delay = std::chrono::milliseconds(1)},
             std::uint64_t seed = 1) {
    ranks_.clear();
    late_.reset();
    mesh_.clear();
    network_.reset();
    world_ = std::make_unique<sim::World>(seed);
    network_ = std::make_unique<sim::Network>(*world_, links);
    mesh_ = simulated::make_mesh(*world_, *network_, size, 4000, [&](int low, int high) {
      const auto peers = control_peers(low, size);
      return std::find(peers.begin(), peers.end(), high) != peers.end();
    });
    if (wrap_) {
      for (int rank = 0; rank < size; ++rank) {
        for (auto& connection : mesh_[static_cast<std::size_t>(rank)]) {
          if (connection) connection = wrap_(rank, std::move(connection));
        }
      }
    }
    late_ = std::make_unique<simulated::LateConnections>(*network_, [this](int number) {
      return rank(number).running ? rank(number).control.get() : nullptr;
    });
    set_log_sink([this](LogLevel level, std::string_view text) {
      if (level == LogLevel::warning) warnings_.emplace_back(text);
      if (level == LogLevel::error) errors_.emplace_back(text);
    });
    for (int rank = 0; rank < size; ++rank) {
      auto& r = ranks_.emplace_back(std::make_unique<Rank>());
      r->control = std::make_unique<Control>(
          Control::Setup{.rank = rank,
                         .size = size,
                         .generation = 1,
                         .failure = &r->failure,
                         .history = &r->history,
                         .peers = simulated::borrow(mesh_[static_cast<std::size_t>(rank)]),
                         .timing = {}});
    }
  }
  Rank& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }
  int size() const { return static_cast<int>(ranks_.size()); }

  /// Polls every rank once a step of virtual time, as a thread would when woken.
  void run(Duration span) {
    const Time end = world_->now() + span;
    while (world_->now() < end) {
      for (auto& r : ranks_) {
        if (!r->running || world_->now() < r->paused_until) continue;
        r->control->poll(world_->now());
        late_->serve(static_cast<int>(&r - ranks_.data()), world_->now());
        if (!r->failed_at && r->failure.raised()) r->failed_at = world_->now();
      }
      world_->run_for(step_);
    }
  }
  void kill(int number) {
    rank(number).running = false;
    network_->kill(simulated::host(number));
  }
  void pause(int number, Duration span) { rank(number).paused_until = world_->now() + span; }

  /// All ranks but `dead` have failed with the same kind and culprits; which.
  Status verdict(const std::set<int>& dead) {
    std::optional<Status> common;
    for (int r = 0; r < size(); ++r) {
      if (dead.count(r) != 0) continue;
      const Status cause = rank(r).failure.cause();
      EXPECT_FALSE(cause.ok()) << "rank " << r << " knows of nothing";
      if (!common) common = cause;
      EXPECT_EQ(cause.kind(), common->kind()) << "rank " << r;
      EXPECT_EQ(cause.culprits(), common->culprits()) << "rank " << r << ": " << cause.message();
      // Two deaths may cut the ring in halves, which then tell the same in their own words.
      if (dead.size() < 2) {
        EXPECT_EQ(cause.message(), common->message()) << "rank " << r;
      }
    }
    return *common;
  }
  Duration longest_since(Time start, const std::set<int>& dead) {
    Duration longest{};
    for (int r = 0; r < size(); ++r) {
      if (dead.count(r) != 0 || !rank(r).failed_at) continue;
      longest = std::max(longest, *rank(r).failed_at - start);
    }
    return longest;
  }
  void expect_no_failure() {
    for (int r = 0; r < size(); ++r) {
      EXPECT_FALSE(rank(r).failure.raised()) << rank(r).failure.cause().message();
    }
  }

  Duration step_ = std::chrono::milliseconds(1);
  /// If set: what each rank gets in the place of a connection.
  std::function<std::unique_ptr<sys::Connection>(int rank, std::unique_ptr<sys::Connection>)> wrap_;
  std::unique_ptr<sim::World> world_;
  std::unique_ptr<sim::Network> network_;
  simulated::Mesh mesh_;
  std::unique_ptr<simulated::LateConnections> late_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::string> warnings_;
  std::vector<std::string> errors_;
};

}  // namespace lockstep::coll
