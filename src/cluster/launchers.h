// What launchers' variables say about this process: rank and size, before anything about addresses.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/cluster_resolver.h"

namespace lockstep::cluster {

struct Claim {
  std::string source;  // "torchrun", "Open MPI", "MPICH", "Slurm"
  int rank = 0;
  int size = 1;
  int local_size = 0;  // ranks on this host; 0: not told
};

// nullopt if the launcher has not started this process; ConfigError if its variables are wrong.

/// RANK and WORLD_SIZE: both, since either alone is a name that others use too.
std::optional<Claim> torchrun_claim(const EnvironmentView& variables);
/// OMPI_COMM_WORLD_RANK and _SIZE, else PMI_RANK and PMI_SIZE.
std::optional<Claim> mpi_claim(const EnvironmentView& variables);
/// SLURM_PROCID and the number of tasks. A batch script by itself is no task of a step: nullopt.
std::optional<Claim> slurm_claim(const EnvironmentView& variables);

/// Where rank 0 listens, if LOCKSTEP_MASTER or MASTER_ADDR with MASTER_PORT say so. ConfigError if
/// ranks of other hosts could not get there.
std::optional<std::string> master_of(const EnvironmentView& variables, const Claim& claim);

/// A name for ranks of this host to meet under: what launchers call a job, in letters that fit.
std::string meeting_name(std::string_view launcher, std::string_view job);
/// The same for ranks that the launcher has all started on this host, and whose first one has a
/// port: like that of localhost it is a name only. Empty if they may be elsewhere.
std::string meeting_at(const std::string& master, const Claim& claim);

/// Workers of which only the first has an address.
ClusterSpec workers_behind(const std::string& master, int size);

}  // namespace lockstep::cluster
