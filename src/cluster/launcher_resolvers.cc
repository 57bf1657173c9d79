// The resolvers of Open MPI, MPICH and torchrun; Slurm's has a file of its own.
#include "lockstep/launcher_resolvers.h"

#include <fmt/format.h>
#include <unistd.h>

#include "cluster/launchers.h"
#include "cluster/text.h"
#include "lockstep/error.h"
#include "sys/own_process.h"

namespace lockstep {
namespace {

using cluster::Claim;

/// Alike for all ranks of a job on this host, and another one for the next job: the launcher's id
/// of the job, else the process that started the ranks. (PMI_ID and PMIX_ID are of one rank.)
/// MPICH's hydra gives no id, and the rank may have been started through a shell: hydra's own process
/// on this host is the one that all ranks have in common.
std::string job_name(const EnvironmentView& variables, const Claim& claim) {
  const char* prefix = claim.source == "Open MPI" ? "openmpi" : "mpich";
  const auto id = cluster::find_variable(variables, {"PMIX_NAMESPACE", "PMI_JOBID"});
  if (!id) {
    const pid_t hydra = sys::ancestor_named("hydra_pmi_proxy");
    return fmt::format("{}-parent-{}", prefix, hydra > 0 ? hydra : getppid());
  }
  return cluster::meeting_name(prefix, id->text);
}

}  // namespace

OpenMpiResolver::OpenMpiResolver(const EnvironmentView& variables) {
  const auto claim = cluster::mpi_claim(variables);
  if (!claim) {
    throw ConfigError(
        "neither OMPI_COMM_WORLD_RANK nor PMI_RANK is set; start with mpirun or mpiexec");
  }
  source_ = claim->source;
  rank_ = claim->rank;
  const auto master = cluster::master_of(variables, *claim);
  cluster_ = cluster::workers_behind(master.value_or(""), claim->size);
  if (master) meeting_ = cluster::meeting_at(*master, *claim);
  if (master || claim->size == 1) return;
  if (claim->local_size != claim->size) {
    throw ConfigError(
        fmt::format("{} started {} ranks ({} on this host) and does not say where rank 0 is; set "
                    "LOCKSTEP_MASTER=host:port for all ranks, e.g. {}",
                    source_, claim->size,
                    claim->local_size == 0 ? "unknown how many" : std::to_string(claim->local_size),
                    source_ == "Open MPI" ? "mpirun -x LOCKSTEP_MASTER=node0:4000"
                                          : "mpiexec -genv LOCKSTEP_MASTER node0:4000"));
  }
  meeting_ = job_name(variables, *claim);
}

TorchrunResolver::TorchrunResolver(const EnvironmentView& variables) {
  const auto claim = cluster::torchrun_claim(variables);
  if (!claim) throw ConfigError("RANK and WORLD_SIZE are not both set; start with torchrun");
  rank_ = claim->rank;
  const auto master = cluster::master_of(variables, *claim);
  if (!master && claim->size > 1) {
    throw ConfigError(fmt::format(
        "MASTER_ADDR is not set, which torchrun sets along with RANK={} and WORLD_SIZE={}; start "
        "with torchrun, or set MASTER_ADDR and MASTER_PORT to where rank 0 shall listen",
        claim->rank, claim->size));
  }
  cluster_ = cluster::workers_behind(master.value_or(""), claim->size);
  if (master) meeting_ = cluster::meeting_at(*master, *claim);
}

}  // namespace lockstep
