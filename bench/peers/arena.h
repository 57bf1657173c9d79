// Arena: a place where contestants run (how many ranks, over what) and the contestants that have
// been started in it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "bench/peers/group.h"
#include "bench/peers/networks.h"

namespace lockstep::bench::peers {

enum class Place {
  shared_memory,  // two ranks on one host, a core each
  crowded,        // four ranks on one host with two cores
  network,        // two ranks in two network namespaces
};

class Arena {
 public:
  /// `programs`: the folder of the contestants' programs.
  Arena(Place place, std::string programs);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] Place place() const noexcept { return place_; }

  /// The contestant of that name, started at the first call. GroupFailed if it cannot be.
  Group& contestant(const std::string& name);
  /// It has failed: ends its processes; whoever asks for it again gets GroupFailed.
  void disqualify(const std::string& name);
  /// All contestants free their memory.
  void forget();

  /// Of Place::network.
  void shape(bool on);

 private:
  [[nodiscard]] Launch launch(const std::string& name) const;

  Place place_;
  std::string programs_;
  std::string directory_;
  std::optional<Networks> networks_;
  std::map<std::string, std::unique_ptr<Group>> groups_;
  std::set<std::string> disqualified_;
};

}  // namespace lockstep::bench::peers
