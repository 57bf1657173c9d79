#include "lockstep/cluster_roles.h"

#include <fmt/format.h>

#include "cluster/text.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

int tasks_of(const ClusterSpec& cluster, const std::string& job) {
  return cluster.has_job(job) ? cluster.num_tasks(job) : 0;
}

std::string jobs_of(const ClusterSpec& cluster) {
  return cluster ? cluster::printable(fmt::format("{}", fmt::join(cluster.jobs(), ", "))) : "none";
}

/// A ps serves the workers and is none of them.
void refuse_ps(const std::string& task_type) {
  if (task_type == "ps") {
    throw InvalidUsage("Unexpected task_type 'ps'; only chief, worker and evaluator are counted");
  }
}

}  // namespace

void validate_cluster_spec(const ClusterSpec& cluster, const std::string& task_type, int task_id) {
  if (task_type != "chief" && task_type != "worker" && task_type != "ps" &&
      task_type != "evaluator") {
    throw ConfigError(fmt::format(
        "Unrecognized task_type '{}'; it is chief, worker, ps or evaluator, and the cluster has {}",
        cluster::printable(task_type), jobs_of(cluster)));
  }
  if (!cluster.has_job(task_type) && task_type != "evaluator") {
    throw ConfigError(fmt::format("task_type '{}' is not in the cluster, which has {}", task_type,
                                  jobs_of(cluster)));
  }
  for (const char* single : {"chief", "evaluator"}) {
    if (const int count = tasks_of(cluster, single); count > 1) {
      throw ConfigError(
          fmt::format("the cluster has {} tasks of job '{}'; there may be one", count, single));
    }
  }
  if (task_id < 0) throw ConfigError(fmt::format("task_id {} is negative", task_id));
  if (!cluster.has_job(task_type)) return;
  const std::vector<int> indices = cluster.task_indices(task_type);
  for (const int index : indices) {
    if (index == task_id) return;
  }
  throw ConfigError(fmt::format("task_id {} is not in job '{}', which has {} tasks{}", task_id,
                                task_type, indices.size(),
                                indices.empty() ? "" : fmt::format(" up to {}", indices.back())));
}

bool is_chief(const ClusterSpec& cluster, const std::string& task_type, int task_id) {
  validate_cluster_spec(cluster, task_type, task_id);
  if (task_type == "chief" || task_type == "evaluator") return true;
  return task_type == "worker" && task_id == 0 && tasks_of(cluster, "chief") == 0;
}

int worker_count(const ClusterSpec& cluster, const std::string& task_type) {
  refuse_ps(task_type);
  // Any task of the job will do to check it; a job with gaps may lack task 0.
  const bool has_tasks = tasks_of(cluster, task_type) > 0;
  validate_cluster_spec(cluster, task_type,
                        has_tasks ? cluster.task_indices(task_type).front() : 0);
  if (task_type != "evaluator") return tasks_of(cluster, "chief") + tasks_of(cluster, "worker");
  if (!cluster.has_job(task_type)) {
    throw ConfigError(
        fmt::format("job 'evaluator' is not in the cluster, which has {}", jobs_of(cluster)));
  }
  return tasks_of(cluster, task_type);
}

int id_in_cluster(const ClusterSpec& cluster, const std::string& task_type, int task_id) {
  refuse_ps(task_type);
  validate_cluster_spec(cluster, task_type, task_id);
  if (task_type == "chief") return 0;
  return task_type == "worker" ? task_id + tasks_of(cluster, "chief") : task_id;
}

std::string collective_leader(const ClusterSpec& cluster, const std::string& task_type,
                              int task_id) {
  if (!cluster) return {};
  validate_cluster_spec(cluster, task_type, task_id);
  if (task_type == "evaluator") return {};
  return fmt::format("/job:{}/replica:0/task:0",
                     tasks_of(cluster, "chief") > 0 ? "chief" : "worker");
}

}  // namespace lockstep
