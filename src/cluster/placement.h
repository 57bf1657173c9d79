// Placement: which rank this process is and where the ranks listen, from whatever started it.
//
// The first of these that is there decides:
//
//   1. LOCKSTEP_RANK and LOCKSTEP_ADDRESSES ("node0:4000,node1:4000")
//   2. TF_CONFIG with a cluster: the chief, then workers in the order of their indices
//   3. torchrun            RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//   4. Open MPI / MPICH    OMPI_COMM_WORLD_RANK, ... / PMI_RANK, ...; addresses from Slurm if that
//                          says the same rank and size
//   5. Slurm               SLURM_PROCID, SLURM_STEP_NODELIST, ...
//   6. nothing: one rank
//
// If a later one says another rank or size, there is one warning that names both. ConfigError for
// what is wrong in the one that decides. Nothing is resolved or opened.
#pragma once

#include <string>
#include <vector>

#include "lockstep/cluster_resolver.h"

namespace lockstep::cluster {

struct Placement {
  int rank = 0;
  /// By rank: "host:port", "[v6]:port", "unix:path". Any but the first may be empty, not known
  /// beforehand: that rank picks its own and says so when it joins. A single rank may have none.
  std::vector<std::string> addresses = {""};
  std::string source;  // for messages: "TF_CONFIG", "Slurm"; empty for a process by itself
  /// Not empty: all ranks are on this host, no address is known, not even the first, and they find
  /// each other under this name ([A-Za-z0-9._-], at most 80 bytes).
  std::string meeting;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(addresses.size()); }
  friend bool operator==(const Placement&, const Placement&) = default;
};

Placement from_environment(const EnvironmentView& variables);

/// What a resolver says; an empty cluster is one rank. ConfigError for a task that is no rank (ps,
/// evaluator), that is not in the cluster or not told, and for addresses that cannot be (twice the
/// same, none for the first rank).
Placement placement_of(const ClusterResolver& resolver);

}  // namespace lockstep::cluster
