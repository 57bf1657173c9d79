// lockstep resolve: which task of which cluster a program would be, started like this.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "lockstep/cluster_roles.h"
#include "lockstep/error.h"
#include "lockstep/resolve_cluster.h"

namespace lockstep::tool {
namespace {

struct Fact {
  std::string name;
  std::string value;
  std::string found_in;  // empty: follows from nothing in particular
};

std::string address_text(const std::optional<std::string>& address) {
  if (!address) return "-";  // a gap
  return address->empty() ? "?" : *address;
}

/// A line for each job.
std::vector<Fact> cluster_facts(const ClusterSpec& cluster, const std::string& found_in) {
  std::vector<Fact> facts;
  for (const std::string& job : cluster.jobs()) {
    std::vector<std::string> addresses;
    for (const auto& address : cluster.job_tasks(job)) addresses.push_back(address_text(address));
    const int tasks = cluster.num_tasks(job);
    facts.push_back({"cluster",
                     fmt::format("{}: {} {}{}{}", job, tasks, tasks == 1 ? "task" : "tasks",
                                 tasks == 0 ? "" : " at ", fmt::join(addresses, ", ")),
                     found_in});
  }
  return facts;
}

/// What follows from the cluster and the task; ConfigError for a task that the cluster cannot have.
std::vector<Fact> role_facts(const ClusterSpec& cluster, const std::string& type, int id) {
  const bool has_chief = cluster.has_job("chief") && cluster.num_tasks("chief") > 0;
  const std::string rule =
      has_chief ? "the cluster has a chief" : "worker 0, as the cluster has no chief";
  std::vector<Fact> facts = {{"chief",
                              is_chief(cluster, type, id) ? "yes, this task" : "no, another task",
                              type == "evaluator" ? "an evaluator is its own" : rule}};
  const std::string leader = collective_leader(cluster, type, id);
  facts.push_back({"leader", leader.empty() ? "none" : leader,
                   leader.empty() ? "an evaluator takes part in no collective" : rule});
  if (type == "ps") {
    facts.push_back({"workers", "this task is none of them", "a ps serves them"});
  } else if (type == "evaluator" && !cluster.has_job(type)) {
    facts.push_back({"workers", "this task is none of them", "an evaluator works alone"});
  } else {
    const int workers = worker_count(cluster, type);
    facts.push_back(
        {"workers",
         fmt::format("{}, this task is number {}", workers, id_in_cluster(cluster, type, id)),
         type == "evaluator" ? "the evaluators" : "chief and workers of the cluster"});
  }
  return facts;
}

std::vector<Fact> facts_of(const ResolvedCluster& found) {
  const ClusterSpec cluster = found.resolver->cluster_spec();
  if (!cluster) {
    return {{"cluster", "none, this process is alone", ""},
            {"chief", "yes, this process", ""},
            {"leader", "none", ""},
            {"workers", "1", ""}};
  }
  const auto type = found.resolver->task_type();
  const auto id = found.resolver->task_id();
  std::vector<Fact> facts = cluster_facts(cluster, found.found_in.cluster);
  const auto missing = [](const std::string& place) {
    return place.empty() ? place : fmt::format("a program that joins needs it: {}", place);
  };
  facts.push_back(type ? Fact{"task type", *type, found.found_in.task_type}
                       : Fact{"task type", "not told", missing(found.found_in.task_type)});
  facts.push_back(id ? Fact{"task id", std::to_string(*id), found.found_in.task_id}
                     : Fact{"task id", "not told", missing(found.found_in.task_id)});
  if (const std::string meeting = found.resolver->meeting(); !meeting.empty()) {
    facts.push_back({"meeting", meeting, "all ranks are on this host"});
  }
  if (!type || !id) return facts;
  try {
    for (Fact& fact : role_facts(cluster, *type, *id)) facts.push_back(std::move(fact));
  } catch (const ConfigError& e) {
    throw ConfigError(fmt::format("{}: {}", found.resolver->source(), e.what()));
  }
  return facts;
}

enum class Detail : unsigned char { facts, with_reasons };

int run(Detail detail) {
  const ResolvedCluster found = resolve_cluster();
  for (const Fact& fact : facts_of(found)) {
    fmt::print("{:<10} {}{}\n", fact.name, fact.value,
               fact.found_in.empty() ? "" : fmt::format("  ({})", fact.found_in));
  }
  if (detail == Detail::facts) return 0;
  if (found.found_in.cluster.empty()) {
    fmt::print("taken      nothing: no launcher or user has described a cluster\n");
  } else {
    fmt::print("taken      {}: the first in order that describes a cluster\n",
               found.resolver->source());
  }
  for (const IgnoredCluster& ignored : found.ignored) {
    fmt::print("ignored    {} {}\n", ignored.source, ignored.reason);
  }
  fmt::print(
      "order      TF_CONFIG, LOCKSTEP_RANK with LOCKSTEP_ADDRESSES, torchrun, Open MPI or MPICH, "
      "Slurm\n");
  return 0;
}

}  // namespace

Command add_resolve(CLI::App& application) {
  const auto explain = std::make_shared<bool>(false);
  CLI::App* parser = application.add_subcommand(
      "resolve", "Show which task of which cluster a program started here would be");
  parser->add_flag("--explain", *explain, "Also what else was there, and why it was not taken");
  parser->footer(
      "Start it as the program would be, with the same environment. It prints the jobs with the\n"
      "addresses of their tasks (?: the task picks its own), the task, its role, and in brackets\n"
      "where that was found. It calls nobody. Exit code 1 if the description is wrong.\n"
      "Examples:\n"
      "  lockstep resolve\n"
      "  srun -n 4 lockstep resolve --explain\n"
      "  lockstep launch -n 2 -- lockstep resolve");
  return {parser, [explain] { return run(*explain ? Detail::with_reasons : Detail::facts); }};
}

}  // namespace lockstep::tool
