// OneNetwork: machines that are connected to one switch, each a network namespace with an address of
// its own. What is lost on the way from one of them to another is lost without a word.
//
//   OneNetwork network(4);                      // needs root
//   ProcessCluster cluster(network.cluster("work 1 1000"));   // a rank on each
//   network.lose({.from = 1, .to = 3});
#pragma once

#include <string>
#include <vector>

#include "tests/processes/cluster.h"

namespace lockstep::processes {

class OneNetwork {
 public:
  /// Throws if a namespace cannot be made.
  explicit OneNetwork(int machines);
  ~OneNetwork();
  OneNetwork(const OneNetwork&) = delete;
  OneNetwork& operator=(const OneNetwork&) = delete;

  /// A rank on each machine.
  [[nodiscard]] ClusterOptions cluster(const std::string& scenario, Wire wire) const;

  struct Way {
    int from = 0;
    int to = 0;
  };
  /// From now on packets that way reach nobody. The other way goes on.
  void lose(Way way);

 private:
  [[nodiscard]] std::string space(int machine) const;
  [[nodiscard]] static std::string host(int machine);
  void remove() noexcept;

  int machines_;
  std::string prefix_;
};

}  // namespace lockstep::processes
