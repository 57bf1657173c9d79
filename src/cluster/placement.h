// Placement: which rank this process is and where the ranks listen, from whatever started it.
//
// The chief is rank 0 and workers follow in the order of their indices. Which description counts is
// decided by resolve_cluster. Nothing is resolved or opened.
#pragma once

#include <string>
#include <vector>

#include "lockstep/cluster_resolver.h"

namespace lockstep::cluster {

struct Placement {
  int rank = 0;
  /// By rank: "host:port", "[v6]:port", "unix:path". Any but the first may be empty, not known
  /// beforehand: that rank picks its own and says so when it joins. A single rank may have none.
  std::vector<std::string> addresses = {""};
  std::string source;  // for messages: "TF_CONFIG", "Slurm"; empty for a process by itself
  /// Not empty: all ranks are on this host, whatever addresses they have, and find each other under
  /// this name ([A-Za-z0-9._-], at most 80 bytes).
  std::string meeting;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(addresses.size()); }
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// One rank if nothing describes a cluster; ConfigError for what is wrong in what decides.
Placement from_environment(const EnvironmentView& variables);

/// What a resolver says; an empty cluster is one rank. ConfigError for a task that is no rank (ps,
/// evaluator), that is not in the cluster or not told, and for addresses that cannot be (twice the
/// same, none for the first rank).
Placement placement_of(const ClusterResolver& resolver);

}  // namespace lockstep::cluster
