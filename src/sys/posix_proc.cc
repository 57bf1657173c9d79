#include "sys/posix_proc.h"

#include <fcntl.h>
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

/// Where a pipe of the child is read, and where the child writes.
struct Pipe {
  Descriptor reads;
  Descriptor writes;
};

/// 0 or an errno. The child's end blocks, as programs expect of their standard output.
int open_pipe(Pipe& pipe) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
  pipe = {.reads = Descriptor(ends[0]), .writes = Descriptor(ends[1])};
  return ::fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 ? 0 : errno;
}

struct Pipes {
  Pipe output;
  Pipe errors;
};

class PosixProcess final : public Process {
 public:
  PosixProcess(pid_t pid, Descriptor pidfd, Command::Group group, Pipes& pipes)
      : pid_(pid),
        pidfd_(std::move(pidfd)),
        group_(group),
        output_(std::move(pipes.output.reads)),
        errors_(std::move(pipes.errors.reads)) {}
  ~PosixProcess() override { end(); }
  PosixProcess(const PosixProcess&) = delete;
  PosixProcess& operator=(const PosixProcess&) = delete;

  [[nodiscard]] int pid() const noexcept override { return pid_; }

  Status signal(Signal which) override {
    if (status_ || send(number_of(which)) != 0) {
      return os_error(fmt::format("cannot signal process {} with {}", pid_, to_string(which)),
                      status_ ? ESRCH : errno);
    }
    return {};
  }

  std::optional<ExitStatus> poll() override {
    if (status_) return status_;
    // Until it is reaped nobody else can get its pid, which is the name of its group.
    siginfo_t info = look(group_ == Command::Group::own ? WNOWAIT : 0);
    if (group_ == Command::Group::own && info.si_pid == pid_) {
      ::kill(-pid_, SIGKILL);
      info = look(0);
    }
    if (info.si_pid == kTaken) {
      status_ = {.how = ExitStatus::How::unknown, .value = 0};
    } else if (info.si_pid != 0) {
      status_ = {
          .how = info.si_code == CLD_EXITED ? ExitStatus::How::exited : ExitStatus::How::signalled,
          .value = info.si_status,
          .core_dumped = info.si_code == CLD_DUMPED};
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

  [[nodiscard]] int end_descriptor() override { return pidfd_.get(); }
  [[nodiscard]] Descriptor take_output() override { return std::move(output_); }
  [[nodiscard]] Descriptor take_errors() override { return std::move(errors_); }

 private:
  static constexpr pid_t kTaken = -1;

  /// si_pid: 0 while it runs, kTaken if somebody else has reaped it.
  siginfo_t look(int flags) const {
    siginfo_t info{};
    const int result = retry_on_signal([&] {
      return ::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG | flags);
    });
    if (result != 0) info.si_pid = kTaken;
    return info;
  }

  int send(int number) const {
    return group_ == Command::Group::own ? ::kill(-pid_, number)
                                         : signal_pidfd(pidfd_.get(), number);
  }

  void end() noexcept {
    try {
      if (poll()) return;
      send(SIGKILL);
      wait(Deadline::after(std::chrono::seconds(1)));
    } catch (...) {
      // Out of memory for a message: the process stays a zombie of ours.
      return;
    }
  }

  pid_t pid_;
  Descriptor pidfd_;
  Command::Group group_;
  Descriptor output_;
  Descriptor errors_;
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
  }
  ~SpawnSettings() {
    ::posix_spawnattr_destroy(&attributes_);
    ::posix_spawn_file_actions_destroy(&actions_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  /// 0 or an errno.
  int prepare(const Command& command, const Pipes& pipes) {
    const bool own_group = command.group == Command::Group::own;
    int error = ::posix_spawnattr_setflags(
        &attributes_, static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                         (own_group ? POSIX_SPAWN_SETPGROUP : 0)));
    if (error == 0 && !command.directory.empty()) {
      error = ::posix_spawn_file_actions_addchdir_np(&actions_, command.directory.c_str());
    }
    if (error == 0 && command.input == Command::Input::empty) {
      error = ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    }
    if (error == 0) error = give(pipes.output, STDOUT_FILENO);
    if (error == 0) error = give(pipes.errors, STDERR_FILENO);
    return error != 0 ? error
                      : ::posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
  }
  [[nodiscard]] const posix_spawn_file_actions_t* actions() const { return &actions_; }
  [[nodiscard]] const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  int give(const Pipe& pipe, int as) {
    if (!pipe.writes.valid()) return 0;
    return ::posix_spawn_file_actions_adddup2(&actions_, pipe.writes.get(), as);
  }

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
  Pipes pipes;
  int error = 0;
  if (command.output == Command::Output::pipe) {
    error = open_pipe(pipes.output);
    if (error == 0) error = open_pipe(pipes.errors);
  }
  if (error == 0) error = settings.prepare(command, pipes);
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
    ::kill(command.group == Command::Group::own ? -pid : pid, SIGKILL);
    retry_on_signal([&] { return ::waitpid(pid, nullptr, 0); });
    raise(os_error(fmt::format("cannot watch the process of {}", command.to_string()), why));
  }
  return std::make_unique<PosixProcess>(pid, std::move(pidfd), command.group, pipes);
}

bool is_running(pid_t pid) noexcept {
  const Descriptor process(open_pidfd(pid));
  // Without descriptors nobody can tell: then it counts as alive.
  if (!process.valid()) return errno != ESRCH;
  pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, 0) == 0;
}

}  // namespace lockstep::sys
