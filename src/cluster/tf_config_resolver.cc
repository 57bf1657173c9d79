#include "cluster/tf_config.h"
#include "lockstep/cluster_resolver.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

cluster::TfConfig config_in(const EnvironmentView& variables) {
  const std::optional<std::string> text = variables("TF_CONFIG");
  return text ? cluster::parse_tf_config(*text) : cluster::TfConfig{};
}

}  // namespace

TfConfigResolver::TfConfigResolver(TaskOptions options, EnvironmentView variables)
    : ClusterResolver(std::move(options)), variables_(std::move(variables)) {}

ClusterSpec TfConfigResolver::cluster_spec() const { return config_in(variables_).cluster; }

std::string TfConfigResolver::master(const TaskOptions& task) const {
  const cluster::TfConfig config = config_in(variables_);
  if (config.session_master) return *config.session_master;
  const std::vector<std::string> jobs = config.cluster.jobs();
  if (jobs.empty() || (jobs.size() == 1 && config.cluster.num_tasks(jobs.front()) == 1)) return {};
  if ((!task.task_type && !task_type()) || (!task.task_id && !task_id())) {
    throw ConfigError(
        "TF_CONFIG has a cluster but no \"task\" with a type and an index; add it, or name the "
        "task");
  }
  return ClusterResolver::master(task);
}

std::optional<std::string> TfConfigResolver::find_task_type() const {
  return config_in(variables_).task_type;
}

std::optional<int> TfConfigResolver::find_task_id() const { return config_in(variables_).task_id; }

std::optional<std::string> TfConfigResolver::find_rpc_layer() const {
  return config_in(variables_).rpc_layer;
}

}  // namespace lockstep
