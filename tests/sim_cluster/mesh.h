// Mesh: simulated processes "host0", "host1", ... and connections between pairs of them.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "sim/network.h"
#include "sim/world.h"

namespace lockstep::simulated {

inline std::string host(int rank) { return fmt::format("host{}", rank); }

/// One set of connections, at most one per pair; row r is rank r's ends, null where it has none.
using Mesh = std::vector<std::vector<std::unique_ptr<sys::Connection>>>;

/// Connects the pairs for which `wanted(low, high)` holds and steps until the world is idle. `port`
/// tells meshes of one network apart.
template <class Wanted>
Mesh make_mesh(sim::World& world, sim::Network& network, int size, int port, Wanted&& wanted) {
  Mesh mesh(static_cast<std::size_t>(size));
  for (auto& row : mesh) row.resize(static_cast<std::size_t>(size));
  for (int low = 0; low < size; ++low) {
    for (int high = low + 1; high < size; ++high) {
      if (!wanted(low, high)) continue;
      const std::string address = fmt::format("{}:{}", host(low), port + high);
      const auto listener = network.at(host(low)).listen(address);
      auto& accepted = mesh[static_cast<std::size_t>(low)][static_cast<std::size_t>(high)];
      mesh[static_cast<std::size_t>(high)][static_cast<std::size_t>(low)] =
          network.at(host(high)).connect(address);
      while (!accepted) {
        accepted = listener->accept();
        if (!accepted && !world.step()) break;
      }
    }
  }
  while (world.step()) {  // until the callers know, too
  }
  return mesh;
}

inline std::vector<sys::Connection*> borrow(
    const std::vector<std::unique_ptr<sys::Connection>>& row) {
  std::vector<sys::Connection*> pointers;
  pointers.reserve(row.size());
  for (const auto& connection : row) pointers.push_back(connection.get());
  return pointers;
}

}  // namespace lockstep::simulated
