// What a task of a cluster is to the others: the rules of TensorFlow's multi_worker_util.
//
//   ClusterSpec cluster{{"chief", {"a:1"}}, {"worker", {"b:1", "c:1"}}, {"ps", {"d:1"}}};
//   worker_count(cluster, "worker");            // 3: the chief works too
//   id_in_cluster(cluster, "worker", 1);        // 2
//   is_chief(cluster, "worker", 0);             // false; true if there were no chief
//   collective_leader(cluster, "worker", 0);    // "/job:chief/replica:0/task:0"
//
// All of them check the task first (validate_cluster_spec). Pure functions.
#pragma once

#include <string>

#include "lockstep/cluster_spec.h"

namespace lockstep {

/// ConfigError unless the type is chief, worker, ps or evaluator, the cluster has that job (an
/// evaluator may stand outside) with that task, and there is at most one chief and one evaluator.
void validate_cluster_spec(const ClusterSpec& cluster, const std::string& task_type, int task_id);

/// The chief, the evaluator, and worker 0 of a cluster without a chief.
bool is_chief(const ClusterSpec& cluster, const std::string& task_type, int task_id);

/// How many tasks work together with one of this type: chief and workers, or the evaluators.
/// InvalidUsage for ps.
int worker_count(const ClusterSpec& cluster, const std::string& task_type);

/// The place among them: the chief is 0, workers follow. InvalidUsage for ps.
int id_in_cluster(const ClusterSpec& cluster, const std::string& task_type, int task_id);

/// The task that leads collectives; empty for an empty cluster and for an evaluator.
std::string collective_leader(const ClusterSpec& cluster, const std::string& task_type,
                              int task_id);

}  // namespace lockstep
