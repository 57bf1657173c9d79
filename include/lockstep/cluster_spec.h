// ClusterSpec: which tasks a cluster has and where they listen.
//
//   ClusterSpec cluster{{"chief", {"node0:4000"}}, {"worker", {"node1:4000", "node2:4000"}}};
//   cluster.num_tasks("worker");           // 2
//   cluster.task_address("worker", 1);     // "node2:4000"
//
// A job is a list of addresses, or a map from index to address that may have gaps:
//
//   ClusterSpec seen_by_a_worker{{"ps", {{0, "node0:4000"}, {3, "node3:4000"}}}};
//
// An address is "host:port", "[v6]:port" or "unix:path"; an empty one belongs to a task that picks
// its own when it joins. An immutable value, free of threads.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

/// The tasks of one job, by index.
class JobTasks {
 public:
  JobTasks() = default;
  JobTasks(std::initializer_list<std::string> addresses);
  JobTasks(const std::vector<std::string>& addresses);
  /// InvalidUsage if an index comes twice.
  JobTasks(std::initializer_list<std::pair<const int, std::string>> tasks);
  JobTasks(std::map<int, std::string> tasks) : tasks_(std::move(tasks)) {}

  [[nodiscard]] const std::map<int, std::string>& tasks() const noexcept { return tasks_; }
  /// Indices 0, 1, 2, ... without a gap; false for a job without tasks.
  [[nodiscard]] bool is_dense() const noexcept;
  [[nodiscard]] std::vector<std::string> addresses() const;

  friend bool operator==(const JobTasks&, const JobTasks&) = default;

 private:
  std::map<int, std::string> tasks_;
};

class ClusterSpec {
 public:
  /// A job without gaps is a list, any other a map.
  using Tasks = std::variant<std::vector<std::string>, std::map<int, std::string>>;

  /// The largest index of a task is one less.
  static constexpr int kMaxTasks = 65'536;

  /// No jobs.
  ClusterSpec() = default;
  /// ConfigError for an address that is none, an index out of range or a job without a name, naming
  /// the entry and the rule; InvalidUsage if a job comes twice.
  ClusterSpec(std::initializer_list<std::pair<const std::string, JobTasks>> jobs);
  explicit ClusterSpec(std::map<std::string, JobTasks> jobs);

  /// Whether there are jobs.
  explicit operator bool() const noexcept { return !jobs_.empty(); }
  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;

  [[nodiscard]] std::map<std::string, Tasks> as_dict() const;
  /// Their names, sorted.
  [[nodiscard]] std::vector<std::string> jobs() const;
  [[nodiscard]] bool has_job(const std::string& job) const { return jobs_.count(job) > 0; }

  // InvalidUsage for a job that the cluster does not have, naming those it has.

  [[nodiscard]] int num_tasks(const std::string& job) const;
  [[nodiscard]] std::vector<int> task_indices(const std::string& job) const;
  /// InvalidUsage too if the job has no such task.
  [[nodiscard]] std::string task_address(const std::string& job, int index) const;
  /// By index; a gap is nullopt.
  [[nodiscard]] std::vector<std::optional<std::string>> job_tasks(const std::string& job) const;

 private:
  [[nodiscard]] const JobTasks& job(const std::string& name) const;
  void check() const;

  std::map<std::string, JobTasks> jobs_;
};

/// "ClusterSpec({'ps': {1: 'a:1'}, 'worker': ['b:1', 'c:1']})"
std::string to_string(const ClusterSpec& cluster);
std::ostream& operator<<(std::ostream& out, const ClusterSpec& cluster);

}  // namespace lockstep
