// Networks: two network namespaces joined by a virtual cable (mtu 1500), removed with the object.
// Needs root.
#pragma once

#include <string>

namespace lockstep::bench::peers {

class Networks {
 public:
  Networks();
  ~Networks();
  Networks(const Networks&) = delete;
  Networks& operator=(const Networks&) = delete;

  /// Namespaces are called prefix() + "0" and prefix() + "1".
  [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }
  [[nodiscard]] static std::string host(int rank);
  [[nodiscard]] static std::string subnet();

  /// Both directions at 1 Gbit/s from now on, or as fast as they go.
  void shape();
  void unshape();

 private:
  std::string prefix_;
  bool shaped_ = false;
};

/// Bytes of user data a second that a 1 Gbit/s line carries in full frames: 1448 of 1514.
double gigabit_goodput() noexcept;

}  // namespace lockstep::bench::peers
