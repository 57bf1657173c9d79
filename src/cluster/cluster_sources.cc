#include "cluster/cluster_sources.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/addresses.h"
#include "cluster/placement.h"
#include "cluster/text.h"
#include "lockstep/error.h"
#include "lockstep/launcher_resolvers.h"

namespace lockstep::cluster {
namespace {

using FoundIn = ResolvedCluster::FoundIn;
using Found = std::shared_ptr<const ClusterResolver>;
using Weight = Remark::Weight;

constexpr const char* kAllAreWorkers = "every rank is a worker";

/// Those of the names that are set: "WORLD_SIZE, MASTER_ADDR".
std::string set_among(const EnvironmentView& variables, std::initializer_list<const char*> names) {
  std::string all;
  for (const char* name : names) {
    if (variables(name)) all += (all.empty() ? "" : ", ") + std::string(name);
  }
  return all;
}

std::optional<Remark> no_remark(const EnvironmentView&) { return std::nullopt; }

// LOCKSTEP_RANK and LOCKSTEP_ADDRESSES.

Found launch_resolver(const EnvironmentView& variables) {
  if (!variables("LOCKSTEP_RANK") && !variables("LOCKSTEP_ADDRESSES")) return nullptr;
  return std::make_shared<LaunchResolver>(variables);
}

FoundIn launch_found_in(const EnvironmentView&) {
  return {.cluster = "LOCKSTEP_ADDRESSES", .task_type = kAllAreWorkers, .task_id = "LOCKSTEP_RANK"};
}

std::optional<Claim> launch_claim(const EnvironmentView& variables) {
  const Found resolver = launch_resolver(variables);
  if (!resolver) return std::nullopt;
  return Claim{.source = resolver->source(),
               .rank = resolver->task_id().value(),
               .size = resolver->cluster_spec().num_tasks("worker")};
}

// TF_CONFIG.

Found tf_config_with_cluster(const EnvironmentView& variables) {
  if (!variables("TF_CONFIG")) return nullptr;
  auto resolver = std::make_shared<TfConfigResolver>(TaskOptions{}, variables);
  if (!resolver->cluster_spec()) return nullptr;
  return resolver;
}

/// Whether an address of TF_CONFIG and one of LOCKSTEP_ADDRESSES may be those of one rank: within a
/// host `lockstep launch` has sockets for itself, and ports of localhost for others.
bool may_be_one_rank(const std::string& told, const std::string& launched) {
  return told == launched || launched.empty() ||
         (launched.starts_with("unix:") && (told.empty() || is_loopback(told)));
}

/// `lockstep launch` describes its ranks in TF_CONFIG, too, for other programs.
bool is_left_to_launch(const EnvironmentView& variables, const ClusterResolver& resolver) {
  try {
    const Found launch = launch_resolver(variables);
    if (!launch) return false;
    const Placement told = placement_of(resolver);
    const Placement launched = placement_of(*launch);
    return told.rank == launched.rank &&
           std::equal(told.addresses.begin(), told.addresses.end(), launched.addresses.begin(),
                      launched.addresses.end(), may_be_one_rank);
  } catch (const ConfigError&) {
    return false;
  }
}

Found tf_config_resolver(const EnvironmentView& variables) {
  Found resolver = tf_config_with_cluster(variables);
  if (!resolver || is_left_to_launch(variables, *resolver)) return nullptr;
  return resolver;
}

FoundIn tf_config_found_in(const EnvironmentView&) {
  return {.cluster = R"(TF_CONFIG, "cluster")",
          .task_type = R"(TF_CONFIG, "task", "type")",
          .task_id = R"(TF_CONFIG, "task", "index")"};
}

std::optional<Claim> tf_config_claim(const EnvironmentView& variables) {
  const Found resolver = tf_config_with_cluster(variables);
  if (!resolver) return std::nullopt;
  const Placement placement = placement_of(*resolver);
  return Claim{.source = "TF_CONFIG", .rank = placement.rank, .size = placement.size()};
}

std::optional<Remark> tf_config_remark(const EnvironmentView& variables) {
  if (!variables("TF_CONFIG")) return std::nullopt;
  const TfConfigResolver resolver({}, variables);
  if (resolver.cluster_spec()) {
    return Remark{
        {"TF_CONFIG", "says the same as LOCKSTEP_ADDRESSES, which knows more about the ranks"}};
  }
  if (resolver.task_type() || resolver.task_id()) {
    return Remark{{"TF_CONFIG", R"(has "task" but no "cluster")"}, Weight::warning};
  }
  return Remark{{"TF_CONFIG", R"(has no "cluster")"}};
}

// torchrun.

Found torchrun_resolver(const EnvironmentView& variables) {
  if (!torchrun_claim(variables)) return nullptr;
  return std::make_shared<TorchrunResolver>(variables);
}

/// What says how many ranks there are, and what says where the first one is.
std::string with_master(const EnvironmentView& variables, const std::string& size) {
  const std::string master = variables("LOCKSTEP_MASTER")
                                 ? "LOCKSTEP_MASTER"
                                 : set_among(variables, {"MASTER_ADDR", "MASTER_PORT"});
  return master.empty() ? size : fmt::format("{}, {}", size, master);
}

FoundIn torchrun_found_in(const EnvironmentView& variables) {
  return {.cluster = with_master(variables, "WORLD_SIZE"),
          .task_type = kAllAreWorkers,
          .task_id = "RANK"};
}

std::optional<Remark> torchrun_remark(const EnvironmentView& variables) {
  const std::string one = set_among(variables, {"RANK", "WORLD_SIZE"});
  if (one.empty()) return std::nullopt;
  return Remark{{one, fmt::format("is set without {}, so it is not torchrun's",
                                  one == "RANK" ? "WORLD_SIZE" : "RANK")}};
}

// Open MPI and MPICH.

/// srun --mpi=pmi2 sets PMI_RANK, and Slurm knows more about the same ranks.
bool is_left_to_slurm(const EnvironmentView& variables, const Claim& claim) {
  if (master_of(variables, claim)) return false;
  try {
    const auto slurm = slurm_claim(variables);
    return slurm && slurm->rank == claim.rank && slurm->size == claim.size;
  } catch (const ConfigError&) {
    return false;
  }
}

Found mpi_resolver(const EnvironmentView& variables) {
  const auto claim = mpi_claim(variables);
  if (!claim || is_left_to_slurm(variables, *claim)) return nullptr;
  return std::make_shared<OpenMpiResolver>(variables);
}

FoundIn mpi_found_in(const EnvironmentView& variables) {
  const bool open_mpi = mpi_claim(variables)->source == "Open MPI";
  return {.cluster = with_master(variables, open_mpi ? "OMPI_COMM_WORLD_SIZE" : "PMI_SIZE"),
          .task_type = kAllAreWorkers,
          .task_id = open_mpi ? "OMPI_COMM_WORLD_RANK" : "PMI_RANK"};
}

std::optional<Remark> mpi_remark(const EnvironmentView& variables) {
  const auto claim = mpi_claim(variables);
  if (!claim) return std::nullopt;
  return Remark{{claim->source, "says the same as Slurm, which knows the addresses"}};
}

// Slurm.

Found slurm_resolver(const EnvironmentView& variables) {
  if (!slurm_claim(variables)) return nullptr;
  return std::make_shared<SlurmResolver>(SlurmOptions{.order = HostOrder::as_listed}, variables);
}

FoundIn slurm_found_in(const EnvironmentView& variables) {
  std::string all;
  for (const auto& names :
       {std::initializer_list<const char*>{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
        {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"},
        {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}}) {
    if (const auto found = find_variable(variables, names)) {
      all += (all.empty() ? "" : ", ") + found->name;
    }
  }
  return {.cluster = all, .task_type = kAllAreWorkers, .task_id = "SLURM_PROCID"};
}

std::optional<Remark> slurm_remark(const EnvironmentView& variables) {
  const auto tasks = variables("SLURM_NTASKS");
  if (!variables("SLURM_JOB_ID") || !variables("SLURM_PROCID") || !tasks || *tasks == "1") {
    return std::nullopt;
  }
  return Remark{{"Slurm", fmt::format("has a job of {} tasks, but this process was started without "
                                      "srun; start it with srun",
                                      printable(*tasks))},
                Weight::warning_if_alone};
}

constexpr ClusterSource kSources[] = {
    {"TF_CONFIG", tf_config_resolver, tf_config_found_in, tf_config_claim, tf_config_remark},
    {"LOCKSTEP_ADDRESSES", launch_resolver, launch_found_in, launch_claim, no_remark},
    {"torchrun", torchrun_resolver, torchrun_found_in, torchrun_claim, torchrun_remark},
    {"MPI", mpi_resolver, mpi_found_in, mpi_claim, mpi_remark},
    {"Slurm", slurm_resolver, slurm_found_in, slurm_claim, slurm_remark},
};

}  // namespace

std::span<const ClusterSource> cluster_sources() { return kSources; }

}  // namespace lockstep::cluster
