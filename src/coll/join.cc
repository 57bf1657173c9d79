#include "lockstep/coll/join.h"

#include <fmt/format.h>

#include "coll/joiner.h"
#include "coll/process_fabric.h"
#include "coll/session_impl.h"
#include "lockstep/coll/threads.h"
#include "plan/select.h"

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

}  // namespace

Session join(const JoinOptions& options) {
  check(options);
  if (options.addresses.size() == 1) {
    return Hub().join({.size = 1, .rank = 0, .options = options.options});
  }
  Joined joined = Joiner(options).run();
  const Roster& roster = joined.presence->roster();
  GroupSpec spec;
  spec.hosts = roster.host_labels();
  for (int rank = 0; rank < roster.size(); ++rank) {
    spec.members.push_back(rank);
    spec.replicas.push_back(roster.at(rank).replicas);
  }
  const int rank = roster.rank;
  auto fabric = std::make_shared<ProcessFabric>(joined.presence, joined.host);
  try {
    return Session(std::make_shared<Session::Impl>(fabric, std::move(spec), rank, options.options));
  } catch (...) {
    fabric->leave(rank);  // the others have joined and would wait for this rank
    throw;
  }
}

}  // namespace lockstep::coll
