// The hosts of a launch, from --hosts or a hostfile, and which ranks run on this one.
//
// Ranks are counted through the hosts in order: with {a, 2} and {b, 3}, ranks 0 and 1 run on a,
// ranks 2, 3 and 4 on b. Everything here throws UsageError naming the text that is wrong.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tool {

struct Host {
  std::string name;
  int slots = 1;  // ranks that run there
  friend bool operator==(const Host&, const Host&) = default;
};

inline constexpr int kMaxRanks = 65'536;

/// "node1,node2", with the same number of ranks each.
std::vector<Host> parse_hosts(std::string_view list, int slots);

/// Lines "node1 slots=4"; "#" begins a comment. A line without slots gets `slots`, which may be
/// absent. `name` is the file's, for messages.
std::vector<Host> parse_hostfile(std::string_view text, std::string_view name,
                                 std::optional<int> slots);

/// The host that is called `hostname`, in full or up to the first dot; empty unless it is just one.
std::optional<int> find_host(const std::vector<Host>& hosts, std::string_view hostname);

struct Placement {
  std::vector<Host> hosts;
  int here = 0;  // index of this host

  [[nodiscard]] int size() const;
  [[nodiscard]] int first_rank() const;  // of this host
  [[nodiscard]] int local_size() const { return hosts.at(static_cast<std::size_t>(here)).slots; }
  [[nodiscard]] bool one_host() const { return hosts.size() == 1; }
};

}  // namespace lockstep::tool
