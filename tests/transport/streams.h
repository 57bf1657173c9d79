// Stream links of simulated ranks, and what goes over them in tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/dtype.h"
#include "tests/sim_cluster/mesh.h"
#include "transport/stream.h"

namespace lockstep::transport {

using Bytes = std::vector<std::byte>;

inline Bytes pattern(std::size_t size, int seed = 0) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>((i * 131 + i / 251 + static_cast<std::size_t>(seed)) & 0xFF);
  }
  return bytes;
}

inline wire::Descriptor broadcast(std::uint64_t sequence, int root = 0, const char* name = "") {
  wire::Descriptor d;
  d.sequence = sequence;
  d.kind = 2;
  d.dtype = static_cast<std::uint8_t>(DType::float32);
  d.count = 7;
  d.root = root;
  d.name = wire::Name(name);
  return d;
}

/// Links between simulated ranks.
class StreamsFixture : public testing::Test {
 protected:
  void start(int size, sim::LinkOptions links = {}) {
    links_.clear();
    mesh_.clear();
    network_.reset();
    world_.emplace(1);
    network_ = std::make_unique<sim::Network>(*world_, links);
    mesh_ = simulated::make_mesh(*world_, *network_, size, 4000, [](int, int) { return true; });
    for (int rank = 0; rank < size; ++rank) {
      for (auto& connection : mesh_[static_cast<std::size_t>(rank)]) {
        if (connection && wrap_) connection = wrap_(rank, std::move(connection));
      }
    }
    failures_ = std::vector<Failure>(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      links_.push_back(std::make_unique<StreamLink>(
          StreamLink::Setup{.rank = rank,
                            .size = size,
                            .generation = 5,
                            .failure = &failures_[static_cast<std::size_t>(rank)],
                            .clock = &*world_,
                            .peers = simulated::borrow(mesh_[static_cast<std::size_t>(rank)]),
                            .checks = std::vector(static_cast<std::size_t>(size), check_),
                            .members = members_}));
    }
  }
  StreamLink& link(int rank) { return *links_[static_cast<std::size_t>(rank)]; }
  sys::Connection& raw(int rank, int peer) {
    return *mesh_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(peer)];
  }
  void begin_all(const wire::Descriptor& descriptor) {
    for (auto& l : links_) l->begin(descriptor, {}, 0);
  }
  /// Receives exactly `size` bytes in one posted span.
  Bytes receive(int rank, int from, std::size_t size) {
    Bytes bytes(size);
    std::size_t got = 0;
    // A round may move headers only; four of them in a row without a byte or an event move none.
    for (int idle = 0; idle < 4 && got < size && !link(rank).failed();) {
      for (auto& l : links_) l->end();
      const std::size_t now = link(rank).receive(from, std::span(bytes).subspan(got));
      got += now;
      idle = now > 0 || world_->step() ? 0 : idle + 1;
    }
    bytes.resize(got);
    return bytes;
  }
  void settle() { world_->run_for(std::chrono::milliseconds(10)); }

  std::optional<sim::World> world_;
  std::unique_ptr<sim::Network> network_;
  simulated::Mesh mesh_;
  std::vector<Failure> failures_;
  std::vector<std::unique_ptr<StreamLink>> links_;
  // Of the links that start() makes.
  std::vector<int> members_;
  wire::Check check_ = wire::Check::none;
  std::function<std::unique_ptr<sys::Connection>(int rank, std::unique_ptr<sys::Connection>)> wrap_;
};

}  // namespace lockstep::transport
