// MemoryKills: whether the kernel has killed somebody for memory, to explain a SIGKILL.
//
//   const MemoryKills before = MemoryKills::read();
//   ... a rank is killed by signal 9 ...
//   MemoryKills::read().explain_since(before)
//
// Reads the memory controller of this process's control group, version 1 or 2; children share it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::tool {

struct MemoryKills {
  std::optional<std::uint64_t> of_group;    // processes the controller killed
  std::optional<std::uint64_t> of_machine;  // processes the kernel killed for memory, anywhere
  std::optional<std::uint64_t> limit;       // bytes; absent: none
  std::optional<std::uint64_t> peak;        // bytes

  /// `root` stands before /proc and /sys, for tests.
  static MemoryKills read(const std::string& root = "");

  /// A clause for behind "killed by signal 9 (KILL)".
  [[nodiscard]] std::string explain_since(const MemoryKills& before) const;
};

}  // namespace lockstep::tool
