#include "sys/posix_proc.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "sys/descriptor.h"
#include "sys/os_error.h"

namespace lockstep::sys {
namespace {

// By number: some C libraries have the wrappers in a header that C++ cannot link.
int open_pidfd(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }
int signal_pidfd(int pidfd, int signal) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}

int number_of(Signal signal) {
  switch (signal) {
    case Signal::hangup:
      return SIGHUP;
    case Signal::interrupt:
      return SIGINT;
    case Signal::terminate:
      return SIGTERM;
    case Signal::kill:
      return SIGKILL;
    case Signal::stop:
      return SIGSTOP;
    case Signal::resume:
      return SIGCONT;
    case Signal::user1:
      return SIGUSR1;
    case Signal::user2:
      return SIGUSR2;
  }
  return SIGKILL;
}

class PosixProcess final : public Process {
 public:
  PosixProcess(pid_t pid, Descriptor pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  ~PosixProcess() override { end(); }
  PosixProcess(const PosixProcess&) = delete;
  PosixProcess& operator=(const PosixProcess&) = delete;

  [[nodiscard]] int pid() const noexcept override { return pid_; }

  Status signal(Signal which) override {
    if (status_ || signal_pidfd(pidfd_.get(), number_of(which)) != 0) {
      return os_error(fmt::format("cannot signal process {} with {}", pid_, to_string(which)),
                      status_ ? ESRCH : errno);
    }
    return {};
  }

  std::optional<ExitStatus> poll() override {
    if (status_) return status_;
    siginfo_t info{};
    const int result = retry_on_signal([&] {
      return ::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG);
    });
    if (result != 0) {
      status_ = {.how = ExitStatus::How::unknown, .value = 0};
    } else if (info.si_pid != 0) {
      status_ = {
          .how = info.si_code == CLD_EXITED ? ExitStatus::How::exited : ExitStatus::How::signalled,
          .value = info.si_status};
    }
    return status_;
  }

  std::optional<ExitStatus> wait(Deadline deadline) override {
    for (;;) {
      if (auto ended = poll()) return ended;
      const Time now = MonotonicClock().now();
      if (deadline.passed(now)) return std::nullopt;
      const Duration left = std::min<Duration>(deadline.time() - now, std::chrono::hours(1));
      const auto sleep = std::chrono::ceil<std::chrono::milliseconds>(left);
      pollfd ended{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
      ::poll(&ended, 1, static_cast<int>(sleep.count()));
    }
  }

 private:
  void end() noexcept {
    try {
      if (poll()) return;
      signal_pidfd(pidfd_.get(), SIGKILL);
      wait(Deadline::after(std::chrono::seconds(1)));
    } catch (...) {
      // Out of memory for a message: the process stays a zombie of ours.
      return;
    }
  }

  pid_t pid_;
  Descriptor pidfd_;
  std::optional<ExitStatus> status_;
};

/// posix_spawn's settings, freed at the end.
class SpawnSettings {
 public:
  SpawnSettings() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigset_t all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    ::posix_spawnattr_destroy(&attributes_);
    ::posix_spawn_file_actions_destroy(&actions_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  /// 0 or an errno.
  int prepare(const std::string& directory) {
    if (!directory.empty()) {
      if (const int error = ::posix_spawn_file_actions_addchdir_np(&actions_, directory.c_str())) {
        return error;
      }
    }
    return ::posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
  }
  [[nodiscard]] const posix_spawn_file_actions_t* actions() const { return &actions_; }
  [[nodiscard]] const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::unique_ptr<Process> PosixProcesses::spawn(const Command& command) {
  if (command.argv.empty()) throw InvalidUsage("a command needs a program: argv is empty");
  SpawnSettings settings;
  const std::vector<char*> argv = pointers_to(command.argv);
  std::vector<char*> own;
  if (command.environment) own = pointers_to(*command.environment);
  pid_t pid = 0;
  int error = settings.prepare(command.directory);
  if (error == 0) {
    error = ::posix_spawnp(&pid, argv[0], settings.actions(), settings.attributes(), argv.data(),
                           command.environment ? own.data() : environ);
  }
  if (error != 0) {
    const std::string where =
        command.directory.empty() ? "" : fmt::format(" in {}", command.directory);
    raise(os_error(fmt::format("cannot start {}{}", command.to_string(), where), error));
  }
  Descriptor pidfd(open_pidfd(pid));
  if (!pidfd.valid()) {
    const int why = errno;
    ::kill(pid, SIGKILL);
    retry_on_signal([&] { return ::waitpid(pid, nullptr, 0); });
    raise(os_error(fmt::format("cannot watch the process of {}", command.to_string()), why));
  }
  return std::make_unique<PosixProcess>(pid, std::move(pidfd));
}

}  // namespace lockstep::sys
