#include "sys/own_process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>

namespace lockstep::sys {
namespace {

constexpr int kMostAncestors = 64;

struct ProcessStat {
  std::string command;
  pid_t parent = 0;
  std::uint64_t start_ticks = 0;  // since the system was started
};

/// "4711 (a name) S 1 ..."; the name may have any letters. Parent 0 if it cannot be read.
ProcessStat stat_of(const std::string& process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  ProcessStat stat{.command = text.substr(open + 1, close - open - 1)};
  std::istringstream rest(text.substr(close + 1));
  std::string skipped;
  rest >> skipped >> stat.parent;
  constexpr int kBetween = 17;  // fields 5 to 21 of proc(5)
  for (int i = 0; i < kBetween; ++i) rest >> skipped;
  rest >> stat.start_ticks;
  return rest ? stat : ProcessStat{};
}

/// In seconds since 1970, as the system counts them; 0 if it does not say.
std::uint64_t boot_time() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t seconds = 0;
    if (words >> name >> seconds && name == "btime") return seconds;
  }
  return 0;
}

}  // namespace

std::uint32_t process_start() {
  const ProcessStat own = stat_of("self");
  const long ticks = ::sysconf(_SC_CLK_TCK);
  const std::uint64_t boot = boot_time();
  if ((own.parent == 0 && own.start_ticks == 0) || ticks <= 0 || boot == 0) return 0;
  return static_cast<std::uint32_t>(boot + own.start_ticks / static_cast<std::uint64_t>(ticks));
}

std::string process_binary() {
  std::array<char, 4096> path{};
  const auto size = ::readlink("/proc/self/exe", path.data(), path.size());
  return size > 0 ? std::string(path.data(), static_cast<std::size_t>(size)) : "?";
}

pid_t ancestor_named(const std::string& command) {
  pid_t pid = ::getppid();
  for (int i = 0; i < kMostAncestors && pid > 1; ++i) {
    const ProcessStat stat = stat_of(std::to_string(pid));
    if (stat.command == command) return pid;
    pid = stat.parent;
  }
  return 0;
}

}  // namespace lockstep::sys
