#include "launch/keeper.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include "sys/descriptor.h"

namespace lockstep::tool {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "LOCKSTEP_LAUNCHER_PID=";
constexpr int kMostRounds = 100;  // against processes that start others while they are killed

bool holds(const std::string& environment, const std::string& entry) {
  // Entries end with a zero byte each.
  return (std::string(1, '\0') + environment).find('\0' + entry + '\0') != std::string::npos;
}

/// Only readable for processes of this user.
std::string environment_of(const fs::path& process) {
  std::ifstream file(process / "environ");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int kill_all_with(const std::string& entry) {
  int found = 0;
  std::error_code error;
  for (fs::directory_iterator process("/proc", error), end; !error && process != end;
       process.increment(error)) {
    const std::string name = process->path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); })) {
      continue;
    }
    // Opened before the look: what is killed is what was looked at, not a successor of its pid.
    const sys::Descriptor pidfd(
        static_cast<int>(::syscall(SYS_pidfd_open, std::atoi(name.c_str()), 0)));
    if (!pidfd.valid() || !holds(environment_of(process->path()), entry)) continue;
    ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
    ++found;
  }
  return found;
}

int run_keeper(const KeeperOptions& options) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  while (::getppid() == options.launcher) {
    int signal = 0;
    ::sigwait(&all, &signal);
  }
  const std::string entry = std::string(kMark) + std::to_string(options.launcher);
  for (int round = 0; round < kMostRounds && kill_all_with(entry) > 0; ++round) ::usleep(10'000);
  std::error_code ignored;
  fs::remove_all(options.directory, ignored);
  return 0;
}

std::vector<std::string> keeper_environment(std::vector<std::string> own) {
  std::erase_if(own, [](const std::string& entry) { return entry.starts_with(kMark); });
  return own;
}

std::vector<std::string> keeper_command(const KeeperOptions& options) {
  return {"/proc/self/exe", "exec",           "--launcher", std::to_string(options.launcher),
          "--keep",         options.directory};
}

}  // namespace lockstep::tool
