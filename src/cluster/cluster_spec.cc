#include "lockstep/cluster_spec.h"

#include <fmt/format.h>

#include "cluster/addresses.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

std::map<int, std::string> numbered(const auto& addresses) {
  std::map<int, std::string> tasks;
  for (const std::string& address : addresses) {
    tasks.emplace(static_cast<int>(tasks.size()), address);
  }
  return tasks;
}

std::string text_of(const ClusterSpec::Tasks& tasks) {
  std::string text;
  const auto add = [&text](const std::string& item) { text += (text.empty() ? "" : ", ") + item; };
  if (const auto* list = std::get_if<std::vector<std::string>>(&tasks)) {
    for (const std::string& address : *list) add(fmt::format("'{}'", address));
    return "[" + text + "]";
  }
  for (const auto& [index, address] : std::get<std::map<int, std::string>>(tasks)) {
    add(fmt::format("{}: '{}'", index, address));
  }
  return "{" + text + "}";
}

}  // namespace

JobTasks::JobTasks(std::initializer_list<std::string> addresses) : tasks_(numbered(addresses)) {}

JobTasks::JobTasks(const std::vector<std::string>& addresses) : tasks_(numbered(addresses)) {}

JobTasks::JobTasks(std::initializer_list<std::pair<const int, std::string>> tasks) {
  for (const auto& task : tasks) {
    const auto [place, is_new] = tasks_.insert(task);
    if (!is_new) {
      throw InvalidUsage(fmt::format("task {} has two addresses: {} and {}", task.first,
                                     place->second, task.second));
    }
  }
}

bool JobTasks::is_dense() const noexcept {
  return !tasks_.empty() && tasks_.begin()->first == 0 &&
         tasks_.rbegin()->first == static_cast<int>(tasks_.size()) - 1;
}

std::vector<std::string> JobTasks::addresses() const {
  std::vector<std::string> all;
  for (const auto& [index, address] : tasks_) all.push_back(address);
  return all;
}

ClusterSpec::ClusterSpec(std::initializer_list<std::pair<const std::string, JobTasks>> jobs) {
  for (const auto& job : jobs) {
    if (!jobs_.insert(job).second) {
      throw InvalidUsage(
          fmt::format("job '{}' comes twice; list all its tasks at once", job.first));
    }
  }
  check();
}

ClusterSpec::ClusterSpec(std::map<std::string, JobTasks> jobs) : jobs_(std::move(jobs)) { check(); }

void ClusterSpec::check() const {
  for (const auto& [name, job] : jobs_) {
    if (name.empty()) throw ConfigError("a job of the cluster has no name; it is e.g. worker");
    for (const auto& [index, address] : job.tasks()) {
      if (index < 0 || index >= kMaxTasks) {
        throw ConfigError(
            fmt::format("job '{}' has a task {}; an index is 0 to {}", name, index, kMaxTasks - 1));
      }
      if (address.empty()) continue;
      if (const std::string problem = cluster::address_problem(address); !problem.empty()) {
        throw ConfigError(fmt::format("job '{}', task {}: {}", name, index, problem));
      }
    }
  }
}

std::map<std::string, ClusterSpec::Tasks> ClusterSpec::as_dict() const {
  std::map<std::string, Tasks> dict;
  for (const auto& [name, job] : jobs_) {
    dict.emplace(name, job.is_dense() ? Tasks(job.addresses()) : Tasks(job.tasks()));
  }
  return dict;
}

std::vector<std::string> ClusterSpec::jobs() const {
  std::vector<std::string> names;
  for (const auto& [name, job] : jobs_) names.push_back(name);
  return names;
}

const JobTasks& ClusterSpec::job(const std::string& name) const {
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) {
    throw InvalidUsage(
        fmt::format("No such job in cluster: '{}'; it has {}", name,
                    jobs_.empty() ? "none" : fmt::format("{}", fmt::join(jobs(), ", "))));
  }
  return found->second;
}

int ClusterSpec::num_tasks(const std::string& name) const {
  return static_cast<int>(job(name).tasks().size());
}

std::vector<int> ClusterSpec::task_indices(const std::string& name) const {
  std::vector<int> indices;
  for (const auto& [index, address] : job(name).tasks()) indices.push_back(index);
  return indices;
}

std::string ClusterSpec::task_address(const std::string& name, int index) const {
  const auto& tasks = job(name).tasks();
  const auto found = tasks.find(index);
  if (found == tasks.end()) {
    throw InvalidUsage(fmt::format("No task with index {} in job '{}', which has {} tasks", index,
                                   name, tasks.size()));
  }
  return found->second;
}

std::vector<std::optional<std::string>> ClusterSpec::job_tasks(const std::string& name) const {
  std::vector<std::optional<std::string>> all;
  for (const auto& [index, address] : job(name).tasks()) {
    all.resize(static_cast<std::size_t>(index));
    all.emplace_back(address);
  }
  return all;
}

std::string to_string(const ClusterSpec& cluster) {
  std::string text;
  for (const auto& [name, tasks] : cluster.as_dict()) {
    text += fmt::format("{}'{}': {}", text.empty() ? "" : ", ", name, text_of(tasks));
  }
  return "ClusterSpec({" + text + "})";
}

std::ostream& operator<<(std::ostream& out, const ClusterSpec& cluster) {
  return out << to_string(cluster);
}

}  // namespace lockstep
