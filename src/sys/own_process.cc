#include "sys/own_process.h"

#include <fmt/format.h>
#include <time.h>
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

}  // namespace

std::uint32_t process_start() {
  const ProcessStat own = stat_of("self");
  const long ticks = ::sysconf(_SC_CLK_TCK);
  timespec now{};
  timespec up{};
  if (own.parent == 0 && own.start_ticks == 0) return 0;
  if (ticks <= 0 || ::clock_gettime(CLOCK_REALTIME, &now) != 0 ||
      ::clock_gettime(CLOCK_BOOTTIME, &up) != 0) {
    return 0;
  }
  const auto age =
      up.tv_sec - static_cast<time_t>(own.start_ticks / static_cast<std::uint64_t>(ticks));
  return static_cast<std::uint32_t>(now.tv_sec - age);
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
