#include "cluster/placement.h"

#include <fmt/format.h>

#include "cluster/addresses.h"
#include "lockstep/cluster_roles.h"
#include "lockstep/error.h"
#include "lockstep/resolve_cluster.h"

namespace lockstep::cluster {
namespace {

Placement checked(Placement placement, const std::vector<std::string>& names) {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < names.size(); ++i) {
    entries.push_back({.name = names[i], .address = placement.addresses[i]});
  }
  check_together(placement.source, entries);
  if (placement.size() > 1 && placement.addresses.front().empty() && placement.meeting.empty()) {
    throw ConfigError(
        fmt::format("{}: {} has no address, and as rank 0 it must be found; give it one",
                    placement.source, names.front()));
  }
  return placement;
}

}  // namespace

Placement from_environment(const EnvironmentView& variables) {
  const ResolvedCluster found = resolve_cluster({}, variables);
  if (!found.resolver->cluster_spec()) return {};
  return placement_of(*found.resolver);
}

Placement placement_of(const ClusterResolver& resolver) {
  const ClusterSpec spec = resolver.cluster_spec();
  Placement placement{.source = resolver.source(), .meeting = resolver.meeting()};
  if (!spec) return placement;
  const auto type = resolver.task_type();
  const auto id = resolver.task_id();
  if (!type || !id) {
    throw ConfigError(fmt::format("{} has a cluster but not the task's {}; say which task this is",
                                  placement.source, !type ? "type" : "index"));
  }
  if (*type == "ps" || *type == "evaluator") {
    throw ConfigError(fmt::format(
        "{}: a task of type '{}' is no rank of synchronous training, only chief and workers are; "
        "start it as one of them, or without the strategy",
        placement.source, *type));
  }
  try {
    validate_cluster_spec(spec, *type, *id);
  } catch (const ConfigError& e) {
    throw ConfigError(fmt::format("{}: {}", placement.source, e.what()));
  }

  placement.addresses.clear();
  std::vector<std::string> names;
  for (const std::string job : {"chief", "worker"}) {
    if (!spec.has_job(job)) continue;
    for (const int index : spec.task_indices(job)) {
      if (job == *type && index == *id) placement.rank = placement.size();
      placement.addresses.push_back(spec.task_address(job, index));
      names.push_back(fmt::format("{} {}", job, index));
    }
  }
  return checked(std::move(placement), names);
}

}  // namespace lockstep::cluster
