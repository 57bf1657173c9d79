// TwoNetworks: two network namespaces with a router between them that can stop to forward. What is
// dropped there was sent in good order: dropping at the sender would disturb its TCP instead.
//
//   TwoNetworks networks;                       // needs root
//   networks.command(0);                        // {"ip", "netns", "exec", ...}: a program's place
//   networks.cut();
#pragma once

#include <string>
#include <vector>

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
  /// From now on nothing gets from one side to the other; and again.
  void cut();
  void mend();

 private:
  void remove() noexcept;
  void forward(bool on);

  std::string prefix_;
};

}  // namespace lockstep::processes
