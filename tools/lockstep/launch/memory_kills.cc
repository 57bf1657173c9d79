#include "launch/memory_kills.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <string_view>

namespace lockstep::tool {
namespace {

// What version 1 says where there is no limit: the largest page-aligned number, or nearly so.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

/// The number behind a word at the beginning of a line.
std::optional<std::uint64_t> number_after(const std::string& path, std::string_view word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t value = 0;
    if (words >> name >> value && name == word) return value;
  }
  return std::nullopt;
}

struct GroupPaths {
  std::string version1;  // path within the memory hierarchy
  std::string version2;
};

/// Lines "4:memory:/path" and "0::/path".
GroupPaths group_paths(const std::string& root) {
  GroupPaths paths;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (line.starts_with("0::")) paths.version2 = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) paths.version1 = line.substr(second + 1);
  }
  return paths;
}

bool read_version1(const std::string& folder, MemoryKills& kills) {
  kills.of_group = number_after(folder + "/memory.oom_control", "oom_kill");
  if (!kills.of_group) return false;
  kills.limit = number_in(folder + "/memory.limit_in_bytes");
  if (kills.limit && *kills.limit >= kNoLimit) kills.limit.reset();
  kills.peak = number_in(folder + "/memory.max_usage_in_bytes");
  return true;
}

bool read_version2(const std::string& folder, MemoryKills& kills) {
  kills.of_group = number_after(folder + "/memory.events", "oom_kill");
  if (!kills.of_group) return false;
  kills.limit = number_in(folder + "/memory.max");  // "max" is no number
  kills.peak = number_in(folder + "/memory.peak");
  return true;
}

std::string mebibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

MemoryKills MemoryKills::read(const std::string& root) {
  MemoryKills kills;
  kills.of_machine = number_after(root + "/proc/vmstat", "oom_kill");
  const GroupPaths paths = group_paths(root);
  const std::string mount = root + "/sys/fs/cgroup";
  // In a container the path may be one of the host's: then its own group is the mount itself.
  if (!paths.version1.empty()) {
    for (const std::string& path : {paths.version1, std::string()}) {
      if (read_version1(fmt::format("{}/memory{}", mount, path), kills)) return kills;
    }
  }
  for (const char* hierarchy : {"", "/unified"}) {
    for (const std::string& path : {paths.version2, std::string()}) {
      if (read_version2(fmt::format("{}{}{}", mount, hierarchy, path), kills)) return kills;
    }
  }
  return kills;
}

std::string MemoryKills::explain_since(const MemoryKills& before) const {
  if (of_group && before.of_group && *of_group > *before.of_group) {
    std::string text = "killed by the memory controller";
    if (limit) text += fmt::format(": limit {}", mebibytes(*limit));
    if (peak) text += fmt::format("{}peak {}", limit ? ", " : ": ", mebibytes(*peak));
    return text;
  }
  if (of_machine && before.of_machine && *of_machine > *before.of_machine) {
    return "the kernel killed a process of this machine for want of memory meanwhile, probably "
           "this one";
  }
  if ((of_group && before.of_group) || (of_machine && before.of_machine)) {
    return "not by the memory controller, which killed nothing meanwhile: somebody sent it";
  }
  return "the memory controller may be the cause, its counters cannot be read here: see dmesg";
}

}  // namespace lockstep::tool
