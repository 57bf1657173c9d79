// Resolvers for processes that a launcher started: lockstep launch, srun, mpirun / mpiexec,
// torchrun.
//
// The launcher's variables are read and checked once, by the constructor: ConfigError if one is
// missing or wrong. All tasks are of the job "worker" unless said otherwise, and the task id is the
// launcher's rank. Open MPI, MPICH and torchrun tell at most where rank 0 is; the addresses of the
// others are empty in the cluster spec, and they pick their own.
//
//   SlurmResolver resolver({.jobs = {{"ps", 1}, {"worker", 3}}});
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster_resolver.h"

namespace lockstep {

/// LOCKSTEP_RANK and LOCKSTEP_ADDRESSES ("node0:4000,node1:4000"), as `lockstep launch` sets them;
/// an address may be empty but for the first. All ranks are workers.
class LaunchResolver final : public ClusterResolver {
 public:
  explicit LaunchResolver(const EnvironmentView& variables = process_environment());

  [[nodiscard]] ClusterSpec cluster_spec() const override { return cluster_; }
  [[nodiscard]] std::string source() const override { return "LOCKSTEP_ADDRESSES"; }

 private:
  [[nodiscard]] std::optional<std::string> find_task_type() const override { return "worker"; }
  [[nodiscard]] std::optional<int> find_task_id() const override { return rank_; }

  ClusterSpec cluster_;
  int rank_ = 0;
};

/// Which host has the first ranks.
enum class HostOrder {
  by_name,    // numbers in names count as numbers: n2 before n10
  as_listed,  // as in Slurm's list, which is how Slurm deals out ranks
};

struct SlurmOptions {
  std::map<std::string, int> jobs = {};  // tasks of each; default: all are workers
  /// Task k of a host listens at port_base + k. Default: LOCKSTEP_PORT_BASE, else 8888.
  std::optional<int> port_base = {};
  std::optional<int> tasks_per_node = {};
  std::optional<int> gpus_per_node = {};  // default: as many as CUDA_VISIBLE_DEVICES lists
  std::optional<int> gpus_per_task = {};  // default: gpus_per_node / the most tasks of a node
  HostOrder order = HostOrder::by_name;
  std::optional<std::string> rpc_layer = {};
};

/// SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE; those of the
/// whole job where there is no step. Jobs take consecutive ranks, in alphabetical order. The tasks
/// of a step on one node find each other under meeting(); their addresses are for others.
class SlurmResolver final : public ClusterResolver {
 public:
  explicit SlurmResolver(SlurmOptions options = {},
                         const EnvironmentView& variables = process_environment());

  [[nodiscard]] ClusterSpec cluster_spec() const override { return cluster_; }
  [[nodiscard]] std::string source() const override { return "Slurm"; }
  [[nodiscard]] std::string meeting() const override { return meeting_; }
  /// {"GPU", gpus_per_task}; empty without GPUs.
  [[nodiscard]] std::map<std::string, int> num_accelerators() const override;
  /// What CUDA_VISIBLE_DEVICES should be for this task, "2,3"; nullopt without GPUs. Setting it is
  /// left to the caller: a library must not change the environment under running threads.
  [[nodiscard]] std::optional<std::string> cuda_visible_devices() const;

 private:
  [[nodiscard]] std::optional<std::string> find_task_type() const override { return task_type_; }
  [[nodiscard]] std::optional<int> find_task_id() const override { return task_id_; }

  ClusterSpec cluster_;
  std::string meeting_;
  std::string task_type_;
  int task_id_ = 0;
  int gpus_per_task_ = 0;
  int local_id_ = 0;
};

/// OMPI_COMM_WORLD_RANK and _SIZE of Open MPI, else PMI_RANK and PMI_SIZE of MPICH. Rank 0 is where
/// LOCKSTEP_MASTER ("host:port") or MASTER_ADDR and MASTER_PORT say. Without them the ranks must
/// all be on one host, where they find each other under meeting(), as those of one host always do;
/// on several it is a ConfigError.
class OpenMpiResolver final : public ClusterResolver {
 public:
  explicit OpenMpiResolver(const EnvironmentView& variables = process_environment());

  [[nodiscard]] ClusterSpec cluster_spec() const override { return cluster_; }
  [[nodiscard]] std::string source() const override { return source_; }
  [[nodiscard]] std::string meeting() const override { return meeting_; }

 private:
  [[nodiscard]] std::optional<std::string> find_task_type() const override { return "worker"; }
  [[nodiscard]] std::optional<int> find_task_id() const override { return rank_; }

  ClusterSpec cluster_;
  std::string source_;
  std::string meeting_;
  int rank_ = 0;
};

/// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them. Rank 0 is at
/// LOCKSTEP_MASTER if that is set, else at the master's port, or at the one after it where
/// torchrun's own store holds it (TORCHELASTIC_USE_AGENT_STORE). Where LOCAL_WORLD_SIZE says that
/// all are on one host they find each other under meeting().
class TorchrunResolver final : public ClusterResolver {
 public:
  explicit TorchrunResolver(const EnvironmentView& variables = process_environment());

  [[nodiscard]] ClusterSpec cluster_spec() const override { return cluster_; }
  [[nodiscard]] std::string source() const override { return "torchrun"; }
  [[nodiscard]] std::string meeting() const override { return meeting_; }

 private:
  [[nodiscard]] std::optional<std::string> find_task_type() const override { return "worker"; }
  [[nodiscard]] std::optional<int> find_task_id() const override { return rank_; }

  ClusterSpec cluster_;
  std::string meeting_;
  int rank_ = 0;
};

}  // namespace lockstep
