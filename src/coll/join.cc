#include "lockstep/coll/join.h"

#include <fmt/format.h>
#include <string.h>

#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/env.h"
#include "base/mutex.h"
#include "cluster/placement.h"
#include "coll/engines.h"
#include "coll/joiner.h"
#include "coll/meeting.h"
#include "coll/plan_carrier.h"
#include "coll/preferences.h"
#include "coll/process_fabric.h"
#include "coll/session_impl.h"
#include "coll/staging_trial.h"
#include "lockstep/coll/threads.h"
#include "sys/descriptor_limit.h"
#include "sys/host_identity.h"
#include "transport/keys.h"
#include "transport/own_failure.h"

namespace lockstep::coll {
namespace {

void check(const JoinOptions& options) {
  const int size = static_cast<int>(options.addresses.size());
  if (size < 1) throw InvalidUsage("addresses is empty; give one for each rank");
  if (options.rank < 0 || options.rank >= size) {
    throw InvalidUsage(
        fmt::format("rank is {}; a group of {} has ranks 0 to {}", options.rank, size, size - 1));
  }
  const Liveness& liveness = options.liveness;
  if (liveness.pulse.count() <= 0 || liveness.suspect < 2 * liveness.pulse ||
      liveness.dead < liveness.suspect) {
    throw InvalidUsage(
        "liveness: pulse must be positive, suspect at least two pulses, dead at least suspect");
  }
  check_session_options(options.options);
}

/// How the ranks of this host stage: as the options or the environment say, or as is fastest.
plan::Staging staging_of(const std::shared_ptr<ProcessFabric>& fabric, transport::ShmHost& host,
                         const GroupSpec& all, int rank, const JoinOptions& options,
                         const std::shared_ptr<Membership>& membership) {
  // The same on all ranks: who joins with other options is refused.
  if (const auto told = preferences_of(options.options).costs.staging) return *told;
  GroupSpec here;
  int place = 0;
  for (std::size_t each = 0; each < all.members.size(); ++each) {
    if (all.hosts[each] != all.hosts[static_cast<std::size_t>(rank)]) continue;
    if (all.members[each] == rank) place = static_cast<int>(here.members.size());
    here.members.push_back(all.members[each]);
    here.replicas.push_back(all.replicas[each]);
    here.hosts.push_back(all.hosts[each]);
  }
  try {
    return StagingTrial(fabric, host, std::move(here), place, options.options, membership)
        .fastest();
  } catch (const Error&) {
    // All have joined: what has failed since is told by the first call of the session.
    return {};
  }
}

/// Room for the descriptors of a rank whose data connections lead to all others: rank 0 has two for
/// each other rank besides, its control connection and what watches the process at the other end.
void make_room_for_descriptors(std::size_t ranks) {
  constexpr std::size_t kForTheProgram = 256;
  constexpr std::size_t kForEachRank = 4;
  (void)sys::raise_descriptor_limit(kForTheProgram + kForEachRank * ranks);
}

/// LOCKSTEP_KEY is read once and removed, since children of this process need not know it; whoever
/// joins again gets what was read.
std::string key_from_environment(const EnvironmentView& variables) {
  static Mutex mutex;
  static std::optional<transport::JobKey> known;
  if (const auto key = variables("LOCKSTEP_KEY"); key && !key->empty()) {
    const MutexLock lock(mutex);
    known = transport::JobKey::from_text(*key, "LOCKSTEP_KEY");
    // Removed alone it would stay in the memory of this process, where /proc shows it.
    if (char* text = std::getenv("LOCKSTEP_KEY")) ::explicit_bzero(text, std::strlen(text));
    ::unsetenv("LOCKSTEP_KEY");
  }
  {
    const MutexLock lock(mutex);
    if (known) return known->to_text();
  }
  const auto file = variables("LOCKSTEP_KEY_FILE");
  return file && !file->empty() ? transport::JobKey::from_file(*file).to_text() : std::string();
}

/// A place among the ranks, and how the environment says that they are protected.
JoinOptions options_at(const cluster::Placement& placement) {
  const EnvironmentView variables = process_environment();
  const auto is_set = [&](const char* name) {
    const auto value = variables(name);
    return value && !value->empty() && *value != "0";
  };
  JoinOptions options;
  options.options.engine = environment().engine;
  options.rank = placement.rank;
  options.addresses = placement.addresses;
  // Who is on one host needs no port, unless the user says what a host is.
  if (!placement.meeting.empty() &&
      (placement.addresses.front().empty() || !sys::host_is_named())) {
    options.addresses.assign(placement.addresses.size(), "");
    options.addresses.front() = user_socket(placement.meeting);
  }
  options.insecure = is_set("LOCKSTEP_INSECURE");
  options.plaintext_data = is_set("LOCKSTEP_PLAINTEXT_DATA");
  if (const auto address = variables("LOCKSTEP_BIND")) options.bind = *address;
  options.key = key_from_environment(variables);
  return options;
}

}  // namespace

Session join(const JoinOptions& options) {
  if (const FormGroup form = engine_of(options.options.engine)) {
    return form(options.options, options.timeout);
  }
  check(options);
  if (options.addresses.size() == 1) {
    return Hub().join({.size = 1, .rank = 0, .options = options.options});
  }
  return transport::naming_shortages(options.rank, [&] {
    make_room_for_descriptors(options.addresses.size());
    return session_of(Joiner(options).run(), options);
  });
}

Session session_of(const Joined& joined, const JoinOptions& options) {
  const Roster& roster = joined.presence->roster();
  GroupSpec spec;
  spec.hosts = roster.host_labels();
  for (int rank = 0; rank < roster.size(); ++rank) {
    spec.members.push_back(rank);
    spec.replicas.push_back(roster.at(rank).replicas);
  }
  const int rank = roster.rank;
  const auto fabric = std::make_shared<ProcessFabric>(joined.presence, joined.host);
  // Leaves if anything throws: the others have joined and would wait for this rank.
  const auto membership =
      std::make_shared<Membership>(fabric, rank, std::make_shared<Records>(rank));
  if (joined.host) {
    joined.host->set_staging(staging_of(fabric, *joined.host, spec, rank, options, membership));
  }
  return Session(std::make_shared<Session::Impl>(fabric, carriers_over(fabric), std::move(spec),
                                                 rank, options.options, membership));
}

JoinOptions join_options_from_environment() {
  return options_at(cluster::from_environment(process_environment()));
}

JoinOptions join_options_for(const ClusterResolver& resolver) {
  return options_at(cluster::placement_of(resolver));
}

Session join() {
  // An engine knows the ranks itself; the variables need not say where they are.
  if (engine_of(environment().engine) != nullptr) {
    JoinOptions options;
    options.options.engine = environment().engine;
    return join(options);
  }
  return join(join_options_from_environment());
}

}  // namespace lockstep::coll
