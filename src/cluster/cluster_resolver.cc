#include "lockstep/cluster_resolver.h"

#include <fmt/format.h>

#include <cstdlib>

#include "lockstep/error.h"

namespace lockstep {
namespace {

std::string with_layer(const std::string& address, const std::optional<std::string>& layer) {
  if (address.empty() || !layer || layer->empty()) return address;
  return fmt::format("{}://{}", *layer, address);
}

/// Adds the tasks of one job to what others gave.
void merge(const std::string& job, const std::string& source,
           const std::map<int, std::string>& tasks, std::map<int, std::string>& merged) {
  for (const auto& [index, address] : tasks) {
    const auto [place, is_new] = merged.emplace(index, address);
    if (!is_new) {
      throw InvalidUsage(fmt::format("task {} of job '{}' comes twice: {}, and {} from {}", index,
                                     job, place->second, address, source));
    }
  }
}

}  // namespace

EnvironmentView process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

std::optional<std::string> ClusterResolver::task_type() const {
  return given_.task_type ? given_.task_type : find_task_type();
}

std::optional<int> ClusterResolver::task_id() const {
  return given_.task_id ? given_.task_id : find_task_id();
}

std::optional<std::string> ClusterResolver::rpc_layer() const {
  return given_.rpc_layer ? given_.rpc_layer : find_rpc_layer();
}

std::string ClusterResolver::master(const TaskOptions& task) const {
  const auto type = task.task_type ? task.task_type : task_type();
  const auto id = task.task_id ? task.task_id : task_id();
  if (!type || !id) return {};
  return with_layer(cluster_spec().task_address(*type, *id),
                    task.rpc_layer ? task.rpc_layer : rpc_layer());
}

AnyClusterResolver::AnyClusterResolver(std::shared_ptr<const ClusterResolver> resolver)
    : resolver_(std::move(resolver)) {
  if (!resolver_) throw InvalidUsage("a cluster resolver is null");
}

SimpleClusterResolver::SimpleClusterResolver(ClusterSpec cluster, SimpleClusterOptions options)
    : ClusterResolver({.task_type = options.task_type,
                       .task_id = options.task_id,
                       .rpc_layer = options.rpc_layer}),
      cluster_(std::move(cluster)),
      options_(std::move(options)) {}

std::string SimpleClusterResolver::master(const TaskOptions& task) const {
  if (task.task_type && task.task_id) return ClusterResolver::master(task);
  return with_layer(options_.master, task.rpc_layer ? task.rpc_layer : rpc_layer());
}

std::map<std::string, int> SimpleClusterResolver::num_accelerators() const {
  return options_.num_accelerators;
}

UnionResolver::UnionResolver(std::vector<AnyClusterResolver> resolvers, TaskOptions options)
    : ClusterResolver({.task_type = std::move(options.task_type),
                       .task_id = options.task_id == 0 ? std::nullopt : options.task_id,
                       .rpc_layer = std::move(options.rpc_layer)}),
      resolvers_(std::move(resolvers)) {
  if (resolvers_.empty()) throw InvalidUsage("a UnionResolver needs at least one resolver");
}

ClusterSpec UnionResolver::cluster_spec() const {
  std::map<std::string, bool> all_lists;
  std::vector<std::pair<std::string, std::map<std::string, ClusterSpec::Tasks>>> parts;
  for (const AnyClusterResolver& resolver : resolvers_) {
    parts.emplace_back(resolver->source(), resolver->cluster_spec().as_dict());
    for (const auto& [job, tasks] : parts.back().second) {
      const bool is_list = std::holds_alternative<std::vector<std::string>>(tasks);
      const auto [known, is_new] = all_lists.emplace(job, is_list);
      if (!is_new) known->second = known->second && is_list;
    }
  }
  std::map<std::string, std::map<int, std::string>> merged;
  for (const auto& [source, jobs] : parts) {
    for (const auto& [job, tasks] : jobs) {
      std::map<int, std::string>& all = merged[job];
      const auto* list = std::get_if<std::vector<std::string>>(&tasks);
      if (list == nullptr) {
        merge(job, source, std::get<std::map<int, std::string>>(tasks), all);
      } else if (!all_lists[job]) {
        merge(job, source, JobTasks(*list).tasks(), all);
      } else {
        for (const std::string& address : *list) all.emplace(static_cast<int>(all.size()), address);
      }
    }
  }
  return ClusterSpec(std::map<std::string, JobTasks>(merged.begin(), merged.end()));
}

std::string UnionResolver::source() const {
  std::string all;
  for (const AnyClusterResolver& resolver : resolvers_) {
    all += (all.empty() ? "" : " and ") + resolver->source();
  }
  return all;
}

std::string UnionResolver::master(const TaskOptions& task) const {
  if (task.task_type && task.task_id) return ClusterResolver::master(task);
  return resolvers_.front()->master({.rpc_layer = task.rpc_layer});
}

std::map<std::string, int> UnionResolver::num_accelerators() const {
  return resolvers_.front()->num_accelerators();
}

std::string UnionResolver::environment() const { return resolvers_.front()->environment(); }

std::optional<std::string> UnionResolver::find_task_type() const {
  return resolvers_.front()->task_type();
}

std::optional<int> UnionResolver::find_task_id() const { return resolvers_.front()->task_id(); }

std::optional<std::string> UnionResolver::find_rpc_layer() const {
  return resolvers_.front()->rpc_layer();
}

}  // namespace lockstep
