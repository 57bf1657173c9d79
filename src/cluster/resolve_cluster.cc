#include "lockstep/resolve_cluster.h"

#include <fmt/format.h>

#include "base/log.h"
#include "cluster/cluster_sources.h"
#include "cluster/placement.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using cluster::Claim;
using cluster::ClusterSource;
using cluster::Remark;

class NoCluster final : public ClusterResolver {
 public:
  [[nodiscard]] ClusterSpec cluster_spec() const override { return {}; }
  [[nodiscard]] std::string source() const override { return "the environment"; }
};

/// nullopt for a task that is no rank, such as a ps, or that is not known.
std::optional<Claim> claim_of(const ClusterResolver& resolver) {
  try {
    const auto placement = cluster::placement_of(resolver);
    return Claim{.source = placement.source, .rank = placement.rank, .size = placement.size()};
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

/// What a source says beside the one that decides; nullopt if it is not there.
std::optional<Remark> remark_beside(const ClusterResolver& taken, const ClusterSource& source,
                                    const EnvironmentView& variables) {
  try {
    const auto claim = source.claim(variables);
    if (!claim) return source.remark(variables);
    if (claim->source == taken.source()) return std::nullopt;
    const auto own = claim_of(taken);
    const bool same = own && own->rank == claim->rank && own->size == claim->size;
    if (same) return Remark{{claim->source, "says the same rank and size"}};
    return Remark{{claim->source, fmt::format("says rank {} of {}", claim->rank, claim->size)},
                  own ? Remark::Weight::warning : Remark::Weight::info};
  } catch (const ConfigError& e) {
    return Remark{{source.name, fmt::format("gives no rank ({})", e.what())}};
  }
}

std::string subject(const ClusterResolver* taken) {
  if (taken == nullptr) return "this process is alone";
  if (const auto claim = claim_of(*taken)) {
    return fmt::format("this is rank {} of {} by {}", claim->rank, claim->size, taken->source());
  }
  return fmt::format("the cluster is that of {}", taken->source());
}

void log_choice(const ClusterResolver* taken, const std::vector<Remark>& remarks) {
  LogLevel level = LogLevel::info;
  std::string ignored;
  for (const Remark& remark : remarks) {
    using Weight = Remark::Weight;
    if (remark.weight == Weight::warning ||
        (remark.weight == Weight::warning_if_alone && taken == nullptr)) {
      level = LogLevel::warning;
    }
    ignored += fmt::format("{}{} {}", ignored.empty() ? "; ignored: " : ", ", remark.ignored.source,
                           remark.ignored.reason);
  }
  if (log_enabled(level)) write_log(level, subject(taken) + ignored);
}

}  // namespace

ResolvedCluster resolve_cluster(std::optional<AnyClusterResolver> given,
                                const EnvironmentView& variables) {
  std::shared_ptr<const ClusterResolver> found;
  const ClusterResolver* taken = given ? &**given : nullptr;
  ResolvedCluster::FoundIn found_in;
  if (given) found_in = {taken->source(), taken->source(), taken->source()};
  std::vector<Remark> remarks;
  for (const ClusterSource& source : cluster::cluster_sources()) {
    std::optional<Remark> remark;
    if (taken != nullptr) {
      remark = remark_beside(*taken, source, variables);
    } else if ((found = source.resolver(variables))) {
      taken = found.get();
      found_in = source.found_in(variables);
    } else {
      remark = source.remark(variables);
    }
    if (remark) remarks.push_back(std::move(*remark));
  }
  log_choice(taken, remarks);
  if (taken == nullptr) found = std::make_shared<NoCluster>();
  ResolvedCluster resolved{.resolver = given ? std::move(*given) : AnyClusterResolver(found),
                           .found_in = std::move(found_in)};
  for (Remark& remark : remarks) resolved.ignored.push_back(std::move(remark.ignored));
  return resolved;
}

}  // namespace lockstep
