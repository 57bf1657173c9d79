// TwoNetworks: two network namespaces with a router between them that can stop to forward. What is
// dropped there was sent in good order: dropping at the sender would disturb its TCP instead.
//
//   TwoNetworks networks;                       // needs root
//   ProcessCluster cluster(networks.cluster("work 1 1000", 2));   // two ranks on each side
//   networks.cut();
#pragma once

#include <string>
#include <vector>

#include "tests/processes/cluster.h"

namespace lockstep::processes {

class TwoNetworks {
 public:
  /// Throws if a namespace cannot be made.
  TwoNetworks();
  ~TwoNetworks();
  TwoNetworks(const TwoNetworks&) = delete;
  TwoNetworks& operator=(const TwoNetworks&) = delete;

  /// What to put before a command to run it on that side, 0 or 1.
  [[nodiscard]] std::vector<std::string> command(int side) const;
  [[nodiscard]] static std::string host(int side);
  /// So many ranks on each side, the first ones on side 0, each side a machine of its own.
  [[nodiscard]] ClusterOptions cluster(const std::string& scenario, int each,
                                       Wire wire = Wire::tls) const;
  /// From now on nothing gets from one side to the other; and again.
  void cut();
  void mend();
  /// From now on so much gets through in each direction, as `tc` writes rates: "1mbit".
  void narrow(const std::string& rate);

 private:
  void remove() noexcept;
  void forward(bool on);

  std::string prefix_;
};

}  // namespace lockstep::processes
