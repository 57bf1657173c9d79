// launch(): runs a program as the ranks of this host, and again after a failure if told to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/display.h"
#include "launch/hosts.h"

namespace lockstep::tool {

struct LaunchOptions {
  enum class OnFailure : unsigned char { stop, restart };

  Placement placement;
  std::string bind = {};              // empty: not told
  std::optional<int> port_base = {};  // of the first rank of a host
  std::string key_file = {};          // empty: not told
  bool insecure = false;
  bool plaintext_data = false;
  OnFailure on_failure = OnFailure::stop;
  int max_restarts = 3;
  Duration settle = std::chrono::seconds(5);
  Duration grace = std::chrono::seconds(30);
  std::string log_dir = {};  // empty: no logs
  DisplayOptions display = {};
  std::vector<std::string> program;
};

inline constexpr int kDefaultPortBase = 29'500;

/// Throws UsageError if ranks of several hosts would have no key.
void check_key(const LaunchOptions& options);

/// The exit code: 0, or that of the rank that failed first. Call it on the main thread: ranks are
/// killed when the thread that started them ends.
int launch(const LaunchOptions& options);

}  // namespace lockstep::tool
