#include "doctor/sharing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "all_texts.h"
#include "sys/topology.h"

namespace lockstep::tool {
namespace {

/// The first processor of each core that this rank may use: "0 2 ".
std::string own_cores() {
  std::string text;
  const sys::Topology topology = sys::Topology::read();
  for (const sys::NumaNode& node : topology.nodes()) {
    for (const sys::CpuSet& core : node.cores) text += fmt::format("{} ", core.front());
  }
  return text;
}

struct Host {
  std::vector<int> ranks;
  std::set<int> cores;  // of all its ranks
};

}  // namespace

Findings check_sharing(coll::Session& group) {
  const std::vector<std::string> masks = all_texts(group, own_cores());
  if (group.rank() != 0) return {};
  std::map<int, Host> hosts;
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::string& mask = masks[static_cast<std::size_t>(rank)];
    Host& host = hosts[group.host(rank)];
    host.ranks.push_back(rank);
    std::istringstream cores(mask);
    for (int core = 0; cores >> core;) host.cores.insert(core);
  }
  Findings findings;
  for (const auto& [label, host] : hosts) {
    if (host.cores.size() >= host.ranks.size()) continue;
    findings.push_back(
        {Verdict::warning, "cores",
         fmt::format("ranks {} have {} core{} among them", fmt::join(host.ranks, ", "),
                     host.cores.size(), host.cores.size() == 1 ? "" : "s"),
         "start fewer, or let the launcher bind them to different ones"});
  }
  return findings;
}

}  // namespace lockstep::tool
