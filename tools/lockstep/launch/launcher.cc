#include "launch/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/deadline.h"
#include "launch/attempt.h"
#include "launch/exit_codes.h"
#include "launch/keeper.h"
#include "launch/key.h"
#include "launch/program.h"
#include "launch/restart_policy.h"
#include "launch/run_directory.h"
#include "sys/address.h"
#include "sys/held_ports.h"
#include "sys/posix_proc.h"
#include "usage_error.h"

namespace lockstep::tool {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool key_in_environment() { return is_set("LOCKSTEP_KEY") || is_set("LOCKSTEP_KEY_FILE"); }

/// What the rest relies on, whoever started us and how.
void prepare_process() {
  // A descriptor opened later must not become standard output.
  while (true) {
    const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0) break;
    if (fd > STDERR_FILENO) {
      ::close(fd);
      break;
    }
    ::fcntl(fd, F_SETFD, 0);
  }
  ::signal(SIGCHLD, SIG_DFL);  // if ignored, the kernel would throw the exit status away
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a log at the limit of `ulimit -f` is an error of write()
}

std::string host_port(const std::string& host, int port) {
  return sys::Address{.kind = sys::Address::Kind::tcp,
                      .host = host,
                      .port = static_cast<std::uint16_t>(port),
                      .path = {}}
      .to_string();
}

/// One host: Unix sockets unless told to bind to an address. Returns the ports that are to be held
/// as long as the ranks run: those of our own programs, since others may not listen on a held one.
sys::HeldPorts give_addresses(const LaunchOptions& options, const std::string& directory,
                              ClusterSettings& cluster) {
  const Placement& placement = options.placement;
  if (!placement.one_host()) {
    for (const Host& host : placement.hosts) {
      for (int i = 0; i < host.slots; ++i) {
        cluster.addresses.push_back(
            host_port(host.name, options.port_base.value_or(kDefaultPortBase) + i));
      }
    }
    cluster.tf_workers = cluster.addresses;
    return sys::HeldPorts(0);
  }
  sys::HeldPorts free(options.port_base ? 0 : placement.size());
  for (int i = 0; i < placement.size(); ++i) {
    const int port =
        options.port_base ? *options.port_base + i : free.numbers()[static_cast<std::size_t>(i)];
    cluster.tf_workers.push_back(
        host_port(options.bind.empty() ? "localhost" : options.bind, port));
    cluster.addresses.push_back(options.bind.empty() ? fmt::format("unix:{}/{}", directory, i)
                                                     : cluster.tf_workers.back());
  }
  return options.bind.empty() ? sys::HeldPorts(0) : std::move(free);
}

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options)
      : options_(options), display_(options.display), policy_(options.max_restarts) {
    for (int i = 0; i < options_.placement.local_size(); ++i) {
      if (options_.log_dir.empty()) {
        logs_.emplace_back();
        continue;
      }
      if (i == 0) make_log_directory(options_.log_dir);
      logs_.emplace_back(
          fmt::format("{}/rank-{}.log", options_.log_dir, options_.placement.first_rank() + i));
    }
  }

  int run() {
    if (options_.insecure && !options_.placement.one_host()) {
      display_.say(
          "--insecure: whoever reaches the ports of this run can join it and read its data");
    }
    const int code = run_until_done();
    display_.say_dropped();
    return code;
  }

 private:
  int run_until_done() {
    for (int restarts = 0;; ++restarts) {
      const AttemptResult result = attempt(restarts);
      if (result.success()) return 0;
      for (const std::string& line : failure_report(result)) display_.say_text(line);
      const RankFailure& first = result.failures.front();
      const int code = exit_code_of(first.status);
      if (options_.on_failure == LaunchOptions::OnFailure::stop || result.stopped_by) return code;
      if (!worth_a_restart(first.status)) {
        display_.say("no restart: exit code {} says that it would not help", first.status.value);
        return code;
      }
      causes_.push_back(first);
      const auto pause = policy_.next(clock_.now());
      if (!pause) {
        give_up();
        return code;
      }
      display_.say("restart {} in {} s", restarts + 1,
                   std::chrono::duration_cast<std::chrono::seconds>(*pause).count());
      if (const auto stop = sleep(*pause)) return kExitSignalled + *stop;
    }
  }

  AttemptResult attempt(int restarts) {
    const int pid = static_cast<int>(::getpid());
    const RunDirectory directory;
    const auto keeper =
        processes_.spawn({.argv = keeper_command({.launcher = pid, .directory = directory.path()}),
                          .environment = keeper_environment(own_environment()),
                          .input = sys::Command::Input::empty,
                          .group = sys::Command::Group::own});
    ClusterSettings cluster{.placement = options_.placement,
                            .addresses = {},
                            .tf_workers = {},
                            .bind = options_.bind,
                            .insecure = options_.insecure,
                            .plaintext_data = options_.plaintext_data,
                            .failure_dir = directory.path(),
                            .restarts = restarts,
                            .launcher_pid = pid};
    const sys::HeldPorts ports = give_addresses(options_, directory.path(), cluster);
    if (!options_.log_dir.empty()) {
      cluster.history_dir = std::filesystem::absolute(options_.log_dir).string();
    }
    if (!options_.key_file.empty()) {
      cluster.key_file = std::filesystem::absolute(options_.key_file).string();
    } else if (options_.placement.one_host() && !options_.insecure && !key_in_environment()) {
      cluster.key_file = directory.path() + "/key";
      write_new_key(cluster.key_file);
    }
    const std::string problem_file = directory.path() + "/problem";
    AttemptResult result = Attempt({.program = options_.program,
                                    .problem_file = problem_file,
                                    .settle = options_.settle,
                                    .grace = options_.grace},
                                   processes_, signals_, display_, logs_)
                               .run(cluster);
    std::getline(std::ifstream(problem_file), result.not_started);
    return result;
  }

  void give_up() {
    const RankFailure& first = causes_.front();
    bool same = true;
    for (const RankFailure& cause : causes_) {
      same = same && cause.rank == first.rank && cause.status == first.status;
    }
    display_.say("giving up, {} restarts in {} minutes are enough (--max-restarts); {}: {}",
                 options_.max_restarts,
                 std::chrono::duration_cast<std::chrono::minutes>(RestartPolicy::kWindow).count(),
                 same ? fmt::format("the same first cause {} times", causes_.size())
                      : fmt::format("the first cause of {} failures", causes_.size()),
                 describe(first));
    for (const std::string& line : first.last_lines) display_.say_text("  | " + line);
  }

  /// Empty, or the signal that asks to end.
  std::optional<int> sleep(Duration pause) {
    display_.flush();
    const Deadline deadline = Deadline::after(pause);
    while (!deadline.passed()) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline.time() - clock_.now());
      pollfd signal{.fd = signals_.descriptor(), .events = POLLIN, .revents = 0};
      ::poll(&signal, 1, static_cast<int>(left.count()));
      while (const auto number = signals_.next()) {
        if (*number == SIGTSTP) {
          ::raise(SIGSTOP);
        } else if (*number != SIGUSR1 && *number != SIGUSR2) {
          return number;
        }
      }
    }
    return std::nullopt;
  }

  const LaunchOptions& options_;
  MonotonicClock clock_;
  SignalQueue signals_;
  Display display_;
  sys::PosixProcesses processes_;
  std::vector<RankLog> logs_;
  RestartPolicy policy_;
  std::vector<RankFailure> causes_;
};

}  // namespace

void check_key(const LaunchOptions& options) {
  if (!options.key_file.empty()) {
    check_key_file(options.key_file);
  } else if (!options.placement.one_host() && !options.insecure && !key_in_environment()) {
    throw UsageError(fmt::format(
        "several hosts need a key, the same on each: make one with {}, copy it to every "
        "host and add --key-file key; or --insecure",
        kMakeKey));
  }
}

int launch(const LaunchOptions& options) {
  prepare_process();
  if (const Program program = find_program(options.program.front()); program.exit_code != 0) {
    fmt::print(stderr, "lockstep: {}\n", program.problem);
    return program.exit_code;
  }
  return Launcher(options).run();
}

}  // namespace lockstep::tool
