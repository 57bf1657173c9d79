#include "doctor/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "cluster/addresses.h"
#include "cluster/placement.h"

namespace lockstep::tool {

bool Place::without_ports() const {
  return joining && cluster::are_of_this_host(joining->addresses);
}

Spread Place::spread() const {
  if (!joining || without_ports()) return Spread::one_host;
  const auto& addresses = joining->addresses;
  const bool all_are_sockets = std::all_of(
      addresses.begin(), addresses.end(),
      [](const std::string& address) { return address.empty() || address.starts_with("unix:"); });
  return all_are_sockets ? Spread::one_host : Spread::several_hosts;
}

int Place::local_ranks() const {
  for (const char* name : {"LOCKSTEP_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                           "LOCAL_WORLD_SIZE"}) {
    const std::string text = process_environment()(name).value_or("");
    int ranks = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
    if (error == std::errc() && end == text.data() + text.size() && ranks > 0) return ranks;
  }
  return spread() == Spread::one_host ? size : 1;
}

Place find_place() {
  Place place;
  // Whether a key is needed is known once the addresses are; whether there is one, only before.
  const Finding needed = check_key(Spread::several_hosts);
  const Finding optional = check_key(Spread::one_host);
  try {
    const cluster::Placement found = cluster::from_environment(process_environment());
    place.rank = found.rank;
    place.size = found.size();
    place.findings.push_back(
        {Verdict::ok, "place",
         found.size() == 1
             ? "alone: no launcher has started this process as one of several ranks"
             : fmt::format("rank {} of {}, from {}", found.rank, found.size(), found.source),
         ""});
    place.joining = coll::join_options_from_environment();
  } catch (const Error& error) {
    place.findings.push_back({Verdict::problem, "place", error.what(),
                              "correct the environment: see docs/environment.md"});
  }
  place.findings.push_back(place.spread() == Spread::several_hosts ? needed : optional);
  return place;
}

}  // namespace lockstep::tool
