// What a simulated process of a job is given: its network, its identity, and options to join with.
#pragma once

#include <atomic>
#include <memory>

#include "coll/joiner.h"
#include "sim/network.h"
#include "tests/sim_cluster/mesh.h"

namespace lockstep::simulated {

enum class Key : std::uint8_t { none, given };

/// Rank r listens at host<r>:4000.
coll::JoinOptions job_options(int ranks, int rank, Key key);

/// `network` is that of the process; both it and `generation` outlive the process. Every rank is a host
/// of its own: no two of them share memory.
coll::JoiningProcess job_process(sys::Network& network, int rank,
                                 std::atomic<std::uint64_t>& generation);

}  // namespace lockstep::simulated
