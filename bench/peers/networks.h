// Networks: two network namespaces joined by a virtual cable (mtu 1500), removed with the object.
// Needs root.
#pragma once

#include <cstddef>
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

/// Seconds that the shaped line needs at least for so many bytes of user data one way: in full
/// frames 1448 of 1514 bytes are the user's, and the shaper lets a bucketful through at once.
double line_seconds(std::size_t bytes) noexcept;

}  // namespace lockstep::bench::peers
