#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "cluster/launchers.h"
#include "cluster/slurm_lists.h"
#include "cluster/text.h"
#include "lockstep/error.h"
#include "lockstep/launcher_resolvers.h"

namespace lockstep {
namespace {

using cluster::Variable;

constexpr const char* kReader = "srun sets for each task; start with srun";

struct Host {
  std::string name;
  int tasks = 0;
};

/// A step may use fewer nodes than its job has.
void check_node_count(const EnvironmentView& variables, const Variable& list, std::size_t nodes) {
  const bool of_step = list.name == "SLURM_STEP_NODELIST";
  const auto count =
      of_step ? cluster::find_variable(variables, {"SLURM_STEP_NUM_NODES"})
              : cluster::find_variable(variables, {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"});
  if (!count) return;
  const int expected = cluster::number_of(*count, {.lowest = 1, .highest = ClusterSpec::kMaxTasks});
  if (static_cast<std::size_t>(expected) != nodes) {
    throw ConfigError(fmt::format("{} lists {} nodes, but {} says {}; start with srun", list.name,
                                  nodes, count->name, expected));
  }
}

std::vector<Host> hosts_of(const EnvironmentView& variables, const SlurmOptions& options) {
  const Variable list = cluster::need_variable(
      variables, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}, kReader);
  std::vector<Host> hosts;
  for (std::string& name : cluster::expand_nodes(list)) hosts.push_back({.name = std::move(name)});
  check_node_count(variables, list, hosts.size());
  if (options.tasks_per_node) {
    for (Host& host : hosts) host.tasks = *options.tasks_per_node;
    return hosts;
  }
  const Variable counts = cluster::need_variable(
      variables, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}, kReader);
  const std::vector<int> tasks = cluster::expand_counts(counts);
  if (tasks.size() != hosts.size()) {
    throw ConfigError(fmt::format("{}={} is about {} nodes, but {}={} has {}; start with srun",
                                  counts.name, cluster::printable(counts.text), tasks.size(),
                                  list.name, cluster::printable(list.text), hosts.size()));
  }
  for (std::size_t i = 0; i < hosts.size(); ++i) hosts[i].tasks = tasks[i];
  return hosts;
}

void check_options(const SlurmOptions& options) {
  const auto positive = [](const char* name, int value) {
    if (value < 1) throw InvalidUsage(fmt::format("SlurmOptions::{} is {}", name, value));
  };
  if (options.port_base && (*options.port_base < 1 || *options.port_base > 65535)) {
    throw InvalidUsage(
        fmt::format("SlurmOptions::port_base is {}; a port is 1 to 65535", *options.port_base));
  }
  if (options.tasks_per_node) positive("tasks_per_node", *options.tasks_per_node);
  for (const auto& [name, tasks] : options.jobs) positive("jobs", tasks);
  if (options.gpus_per_node.value_or(0) < 0 || options.gpus_per_task.value_or(0) < 0) {
    throw InvalidUsage("SlurmOptions: the number of GPUs is negative");
  }
}

/// "0", "GPU-8932f937" or "MIG-..."; not "-1" or "NoDevFiles", which say that there is none.
bool names_gpu(std::string_view entry) {
  return entry.starts_with("GPU-") || entry.starts_with("MIG-") ||
         (!entry.empty() && entry.find_first_not_of("0123456789") == std::string_view::npos);
}

/// Of CUDA_VISIBLE_DEVICES: CUDA sees those before the first that names none.
int count_gpus(std::string_view visible) {
  int count = 0;
  while (true) {
    const std::size_t comma = visible.find(',');
    if (!names_gpu(visible.substr(0, comma))) return count;
    ++count;
    if (comma == std::string_view::npos) return count;
    visible.remove_prefix(comma + 1);
  }
}

int gpus_per_task_of(const EnvironmentView& variables, const SlurmOptions& options,
                     int tasks_per_node) {
  int per_node = 0;
  if (options.gpus_per_node) {
    per_node = *options.gpus_per_node;
  } else if (const auto visible = variables("CUDA_VISIBLE_DEVICES")) {
    per_node = count_gpus(*visible);
  }
  const int per_task = options.gpus_per_task.value_or(per_node / tasks_per_node);
  if (per_task > 0 && per_task > per_node / tasks_per_node) {
    throw ConfigError(fmt::format(
        "{} tasks of a node with {} GPUs each need more than the {} it has; start fewer tasks a "
        "node or lower gpus_per_task",
        tasks_per_node, per_task, per_node));
  }
  return per_task;
}

/// The task runs where Slurm says; an entry on another host could not be listened at.
void check_own_host(const EnvironmentView& variables, int rank, const std::string& host) {
  const auto own = variables("SLURMD_NODENAME");
  if (!own || *own == host) return;
  throw ConfigError(
      fmt::format("SLURM_PROCID {} falls on node {} by the lists of nodes and tasks, but "
                  "SLURMD_NODENAME says {}; "
                  "start with srun --distribution=block, or use HostOrder::as_listed",
                  rank, host, cluster::printable(*own)));
}

/// Two steps on the same nodes need different ports, and only who starts them knows.
int port_base_of(const EnvironmentView& variables, const SlurmOptions& options) {
  constexpr int kDefault = 8888;
  if (options.port_base) return *options.port_base;
  const auto given = cluster::find_variable(variables, {"LOCKSTEP_PORT_BASE"});
  return given ? cluster::number_of(*given, {.lowest = 1, .highest = 65535}) : kDefault;
}

/// Of a step on one node, which may run beside others; empty if Slurm does not say which it is.
std::string meeting_of(const EnvironmentView& variables, int port_base) {
  const auto job = cluster::find_variable(variables, {"SLURM_JOB_ID", "SLURM_JOBID"});
  const auto step = cluster::find_variable(variables, {"SLURM_STEP_ID", "SLURM_STEPID"});
  if (!job || !step) return {};
  return cluster::meeting_name("slurm", fmt::format("{}-{}-{}", job->text, step->text, port_base));
}

}  // namespace

SlurmResolver::SlurmResolver(SlurmOptions options, const EnvironmentView& variables)
    : ClusterResolver({.rpc_layer = options.rpc_layer}) {
  check_options(options);
  const auto claim = cluster::slurm_claim(variables);
  if (!claim) {
    // Which one is missing?
    cluster::need_variable(variables, {"SLURM_PROCID"}, kReader);
    cluster::need_variable(variables, {"SLURM_STEP_NUM_TASKS"}, kReader);
    throw ConfigError("this process is no task of a Slurm step; start with srun");
  }
  std::vector<Host> hosts = hosts_of(variables, options);
  if (options.order == HostOrder::by_name) {
    std::stable_sort(hosts.begin(), hosts.end(), [](const Host& a, const Host& b) {
      return cluster::natural_less(a.name, b.name);
    });
  }
  // Summed up before anything is made of it: 65,536 nodes may claim as many tasks each.
  const std::int64_t tasks =
      std::accumulate(hosts.begin(), hosts.end(), std::int64_t{0},
                      [](std::int64_t sum, const Host& host) { return sum + host.tasks; });
  if (tasks != claim->size) {
    throw ConfigError(
        fmt::format("Slurm's lists of nodes and tasks make {} tasks, but there are {} "
                    "(SLURM_STEP_NUM_TASKS); start with srun",
                    tasks, claim->size));
  }
  if (options.jobs.empty()) options.jobs = {{"worker", claim->size}};

  const int port_base = port_base_of(variables, options);
  std::vector<std::string> addresses;
  int most = 0;
  for (const Host& host : hosts) {
    most = std::max(most, host.tasks);
    if (host.tasks - 1 > 65535 - port_base) {
      throw ConfigError(fmt::format("node {} has {} tasks, and ports from {} on do not suffice",
                                    host.name, host.tasks, port_base));
    }
    for (int k = 0; k < host.tasks; ++k) {
      if (static_cast<int>(addresses.size()) == claim->rank) {
        check_own_host(variables, claim->rank, host.name);
        local_id_ = k;
      }
      addresses.push_back(fmt::format("{}:{}", host.name, port_base + k));
    }
  }
  if (hosts.size() == 1 && tasks > 1) meeting_ = meeting_of(variables, port_base);
  gpus_per_task_ = gpus_per_task_of(variables, options, most);

  std::map<std::string, JobTasks> jobs;
  std::int64_t first = 0;
  for (const auto& [name, count] : options.jobs) {
    const std::int64_t end = first + count;
    if (end > tasks) break;
    if (claim->rank >= first && claim->rank < end) {
      task_type_ = name;
      task_id_ = claim->rank - static_cast<int>(first);
    }
    jobs.emplace(name,
                 std::vector<std::string>(addresses.begin() + first, addresses.begin() + end));
    first = end;
  }
  if (first != tasks || jobs.size() != options.jobs.size()) {
    throw ConfigError(
        fmt::format("SlurmOptions::jobs and the {} tasks that Slurm started differ in "
                    "number; give every task a job",
                    tasks));
  }
  cluster_ = ClusterSpec(std::move(jobs));
}

std::map<std::string, int> SlurmResolver::num_accelerators() const {
  if (gpus_per_task_ == 0) return {};
  return {{"GPU", gpus_per_task_}};
}

std::optional<std::string> SlurmResolver::cuda_visible_devices() const {
  if (gpus_per_task_ == 0) return std::nullopt;
  std::vector<int> devices(static_cast<std::size_t>(gpus_per_task_));
  std::iota(devices.begin(), devices.end(), local_id_ * gpus_per_task_);
  return fmt::format("{}", fmt::join(devices, ","));
}

}  // namespace lockstep
