// What a simulated process of a job is given: its network, its identity, and options to join with.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "coll/joiner.h"
#include "sim/network.h"
#include "tests/sim_cluster/mesh.h"

namespace lockstep::simulated {

enum class Key : std::uint8_t { none, given };
/// Whether every rank has an address of its own. No two ranks share memory, either way.
enum class Addresses : std::uint8_t { one_each, one_for_all };

/// A job as all its processes know it.
struct JobSpec {
  int ranks = 1;
  Key key = Key::none;
  Addresses addresses = Addresses::one_each;

  /// What the simulated network calls that process.
  [[nodiscard]] std::string process(int rank) const;
  [[nodiscard]] coll::JoinOptions options(int rank) const;
};

/// `network` is that of the process; it and `generation` outlive the process.
coll::JoiningProcess job_process(sys::Network& network, int rank,
                                 std::atomic<std::uint64_t>& generation);

}  // namespace lockstep::simulated
