// The places where launchers and users describe a cluster, in the order in which they count
// (lockstep/resolve_cluster.h).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cluster/launchers.h"
#include "lockstep/resolve_cluster.h"

namespace lockstep::cluster {

/// What there is to say about a source that was not taken.
struct Remark {
  enum class Weight : unsigned char {
    info,
    warning_if_alone,  // it may be why there is no cluster
    warning,
  };

  IgnoredCluster ignored;
  Weight weight = Weight::info;
};

struct ClusterSource {
  const char* name;
  /// Null if it describes no cluster, or leaves that to a later one; ConfigError if it is wrong.
  std::shared_ptr<const ClusterResolver> (*resolver)(const EnvironmentView&);
  /// Of the cluster that it describes.
  ResolvedCluster::FoundIn (*found_in)(const EnvironmentView&);
  /// Rank and size, which are cheap and ask for no addresses; nullopt and ConfigError likewise.
  std::optional<Claim> (*claim)(const EnvironmentView&);
  /// For variables that are there and describe no cluster.
  std::optional<Remark> (*remark)(const EnvironmentView&);
};

std::span<const ClusterSource> cluster_sources();

}  // namespace lockstep::cluster
