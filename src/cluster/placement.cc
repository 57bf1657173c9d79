#include "cluster/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "cluster/addresses.h"
#include "cluster/launchers.h"
#include "cluster/text.h"
#include "lockstep/cluster_roles.h"
#include "lockstep/error.h"
#include "lockstep/launcher_resolvers.h"

namespace lockstep::cluster {
namespace {

std::vector<std::string> split(const Variable& list) {
  std::vector<std::string> items;
  std::size_t start = 0;
  while (true) {
    const std::size_t comma = std::min(list.text.find(',', start), list.text.size());
    const std::string item = list.text.substr(start, comma - start);
    const std::string advice = "write addresses with commas between, one for each rank";
    if (item.empty() && items.empty()) {
      refuse(list, start, "rank 0 has no address", "others must know where to find it");
    }
    const std::string problem = item.empty() ? "" : address_problem(item);
    if (!problem.empty()) refuse(list, start, problem, advice);
    if (items.size() == static_cast<std::size_t>(ClusterSpec::kMaxTasks)) {
      refuse(list, start, fmt::format("there are more than {} ranks", ClusterSpec::kMaxTasks),
             "make the list shorter");
    }
    items.push_back(item);
    if (comma == list.text.size()) return items;
    start = comma + 1;
  }
}

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

std::optional<Placement> from_own_variables(const EnvironmentView& variables) {
  if (!variables("LOCKSTEP_RANK") && !variables("LOCKSTEP_ADDRESSES")) return std::nullopt;
  const char* reader =
      "goes with the other of LOCKSTEP_RANK and LOCKSTEP_ADDRESSES; set both or none";
  const Variable list = need_variable(variables, {"LOCKSTEP_ADDRESSES"}, reader);
  const Variable rank = need_variable(variables, {"LOCKSTEP_RANK"}, reader);
  Placement placement{
      .rank = 0, .addresses = split(list), .source = "LOCKSTEP_ADDRESSES", .meeting = {}};
  placement.rank = number_of(rank, {.lowest = 0, .highest = placement.size() - 1});
  std::vector<std::string> names;
  for (int i = 0; i < placement.size(); ++i) names.push_back(fmt::format("entry {}", i));
  return checked(std::move(placement), names);
}

std::optional<Placement> from_tf_config(const EnvironmentView& variables) {
  const TfConfigResolver resolver({}, variables);
  if (!resolver.cluster_spec()) {
    if (resolver.task_type() || resolver.task_id()) {
      log_warning("TF_CONFIG has \"task\" but no \"cluster\"; it is ignored");
    }
    return std::nullopt;
  }
  return placement_of(resolver);
}

std::optional<Placement> from_torchrun(const EnvironmentView& variables) {
  if (!torchrun_claim(variables)) return std::nullopt;
  return placement_of(TorchrunResolver(variables));
}

std::optional<Placement> from_slurm(const EnvironmentView& variables) {
  if (!slurm_claim(variables)) return std::nullopt;
  return placement_of(SlurmResolver({.order = HostOrder::as_listed}, variables));
}

/// What a source says that does not decide: nothing if it cannot be understood.
template <class Read>
std::optional<Claim> claim_if_readable(Read read, const EnvironmentView& variables) {
  try {
    return read(variables);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

std::optional<Placement> from_mpi(const EnvironmentView& variables) {
  const auto claim = mpi_claim(variables);
  if (!claim) return std::nullopt;
  // srun --mpi=pmi2 sets PMI_RANK, and Slurm knows more about the same ranks.
  const auto slurm =
      master_of(variables, *claim) ? std::nullopt : claim_if_readable(slurm_claim, variables);
  if (slurm && slurm->rank == claim->rank && slurm->size == claim->size)
    return from_slurm(variables);
  return placement_of(OpenMpiResolver(variables));
}

std::optional<Claim> tf_config_claim(const EnvironmentView& variables) {
  const auto placement = from_tf_config(variables);
  if (!placement) return std::nullopt;
  return Claim{.source = "TF_CONFIG", .rank = placement->rank, .size = placement->size()};
}

/// In order of precedence. A claim is cheap and asks for no addresses.
struct Source {
  std::optional<Placement> (*place)(const EnvironmentView&);
  std::optional<Claim> (*claim)(const EnvironmentView&);
};
constexpr Source kSources[] = {
    {from_own_variables, nullptr},  // nothing stands before it
    {from_tf_config, tf_config_claim}, {from_torchrun, torchrun_claim}, {from_mpi, mpi_claim},
    {from_slurm, slurm_claim},
};

/// One warning about all later sources that say something else.
void warn_of_contradictions(const Placement& placement, const Source* later,
                            const EnvironmentView& variables) {
  std::string others;
  for (; later != std::end(kSources); ++later) {
    const auto claim = claim_if_readable(later->claim, variables);
    if (claim && (claim->rank != placement.rank || claim->size != placement.size())) {
      others += fmt::format("{}{} says rank {} of {}", others.empty() ? "" : ", ", claim->source,
                            claim->rank, claim->size);
    }
  }
  if (others.empty()) return;
  log_warning("this is rank {} of {} by {}, which goes before the others, but {}", placement.rank,
              placement.size(), placement.source, others);
}

}  // namespace

Placement from_environment(const EnvironmentView& variables) {
  for (const Source& source : kSources) {
    if (auto placement = source.place(variables)) {
      warn_of_contradictions(*placement, &source + 1, variables);
      return std::move(*placement);
    }
  }
  if (variables("SLURM_JOB_ID") && variables("SLURM_PROCID") &&
      variables("SLURM_NTASKS").value_or("1") != "1") {
    log_warning(
        "a Slurm job of {} tasks runs this process without srun: it is alone; start it with srun",
        printable(*variables("SLURM_NTASKS")));
  }
  return {};
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
