// resolve_cluster: which description of the cluster counts where there are several.
//
//   const ResolvedCluster found = resolve_cluster();    // from the variables of this process
//   if (!found.resolver->cluster_spec()) ...            // nothing describes one: alone
//
// The first of these decides:
//
//   1. the resolver that the caller gives
//   2. TF_CONFIG with a "cluster"; left to 3 if that is the same one, as `lockstep launch` sets
//   both
//   3. lockstep launch     LOCKSTEP_RANK, LOCKSTEP_ADDRESSES
//   4. torchrun            RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//   5. Open MPI / MPICH    OMPI_COMM_WORLD_RANK, ... / PMI_RANK, ...; left to Slurm if that says
//   the
//                          same rank and size and nothing else says where rank 0 is
//   6. Slurm               SLURM_PROCID, SLURM_STEP_NODELIST, ...
//   7. nothing: this process is alone
//
// One line of the log says which was taken and which were ignored; it is a warning if one of them
// says another rank or size. join() and `lockstep resolve` go by this function. Nothing is resolved
// or opened. Any thread may call it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster_resolver.h"

namespace lockstep {

/// A description that is there and was not taken.
struct IgnoredCluster {
  std::string source;  // "torchrun"
  std::string reason;  // what follows its name: "says rank 3 of 4"

  friend bool operator==(const IgnoredCluster&, const IgnoredCluster&) = default;
};

struct ResolvedCluster {
  /// Where facts were found, for people: "WORLD_SIZE, MASTER_ADDR". Empty if nowhere.
  struct FoundIn {
    std::string cluster = {};
    std::string task_type = {};
    std::string task_id = {};

    friend bool operator==(const FoundIn&, const FoundIn&) = default;
  };

  AnyClusterResolver resolver;
  FoundIn found_in = {};
  std::vector<IgnoredCluster> ignored = {};  // in the order above
};

/// ConfigError for what is wrong in the description that decides; the others may be wrong.
ResolvedCluster resolve_cluster(std::optional<AnyClusterResolver> given = {},
                                const EnvironmentView& variables = process_environment());

}  // namespace lockstep
