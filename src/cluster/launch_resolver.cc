#include <fmt/format.h>

#include <algorithm>

#include "cluster/addresses.h"
#include "cluster/text.h"
#include "lockstep/launcher_resolvers.h"

namespace lockstep {
namespace {

using cluster::Variable;

std::vector<std::string> split(const Variable& list) {
  std::vector<std::string> items;
  std::size_t start = 0;
  while (true) {
    const std::size_t comma = std::min(list.text.find(',', start), list.text.size());
    const std::string item = list.text.substr(start, comma - start);
    const std::string advice = "write addresses with commas between, one for each rank";
    if (item.empty() && items.empty()) {
      cluster::refuse(list, start, "rank 0 has no address", "others must know where to find it");
    }
    const std::string problem = item.empty() ? "" : cluster::address_problem(item);
    if (!problem.empty()) cluster::refuse(list, start, problem, advice);
    if (items.size() == static_cast<std::size_t>(ClusterSpec::kMaxTasks)) {
      cluster::refuse(list, start,
                      fmt::format("there are more than {} ranks", ClusterSpec::kMaxTasks),
                      "make the list shorter");
    }
    items.push_back(item);
    if (comma == list.text.size()) return items;
    start = comma + 1;
  }
}

}  // namespace

LaunchResolver::LaunchResolver(const EnvironmentView& variables) {
  const char* reader =
      "goes with the other of LOCKSTEP_RANK and LOCKSTEP_ADDRESSES; set both or none";
  const Variable list = cluster::need_variable(variables, {"LOCKSTEP_ADDRESSES"}, reader);
  const Variable rank = cluster::need_variable(variables, {"LOCKSTEP_RANK"}, reader);
  const std::vector<std::string> addresses = split(list);
  const int size = static_cast<int>(addresses.size());
  rank_ = cluster::number_of(rank, {.lowest = 0, .highest = size - 1});
  std::vector<cluster::Entry> entries;
  for (const std::string& address : addresses) {
    entries.push_back({.name = fmt::format("entry {}", entries.size()), .address = address});
  }
  cluster::check_together(list.name, entries);
  cluster_ = ClusterSpec{{"worker", addresses}};
}

}  // namespace lockstep
