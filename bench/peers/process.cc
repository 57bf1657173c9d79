#include "bench/peers/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace lockstep::bench::peers {
namespace {

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void remember(int) { interrupted = true; }

std::string joined(const Command& command) {
  std::string text;
  for (const std::string& word : command) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// In the child: from here on only calls that are safe after fork().
[[noreturn]] void become(char* const* words, char* const* variables, int output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execvpe(words[0], words, variables);
  _exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

pid_t start(Command command, std::vector<std::string> environment, int output) {
  for (char** variable = environ; *variable != nullptr; ++variable)
    environment.emplace_back(*variable);
  const std::vector<char*> words = pointers(command);
  const std::vector<char*> variables = pointers(environment);
  const pid_t pid = fork();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "cannot fork");
  if (pid == 0) become(words.data(), variables.data(), output);
  return pid;
}

}  // namespace

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = remember;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

void check_interrupted() {
  if (interrupted) throw Interrupted();
}

Child::Child(const Command& command, const std::vector<std::string>& environment,
             const std::string& output) {
  const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) throw std::system_error(errno, std::generic_category(), "cannot make " + output);
  pid_ = start(command, environment, file);
  close(file);
}

Child::Child(Child&& other) noexcept : pid_(other.pid_) { other.pid_ = -1; }

Child::~Child() { kill(); }

bool Child::ended() {
  if (pid_ >= 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
  return pid_ < 0;
}

void Child::kill() {
  if (ended()) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);  // if it has not made its group yet
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

void run_command(const Command& command) {
  std::array<int, 2> pipe{};
  if (pipe2(pipe.data(), O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
  const pid_t pid = start(command, {}, pipe[1]);
  close(pipe[1]);
  std::string output;
  std::array<char, 512> part{};
  for (;;) {
    const ssize_t got = read(pipe[0], part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    output.append(part.data(), static_cast<std::size_t>(got));
  }
  close(pipe[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw std::runtime_error(fmt::format("'{}' failed: {}", joined(command), output));
}

std::string own_name() { return fmt::format("{}{}-", kPrefix, getpid()); }

bool left_behind(const std::string& name) {
  const std::string prefix = kPrefix;
  if (name.rfind(prefix, 0) != 0) return false;
  const pid_t owner = std::atoi(name.c_str() + prefix.size());
  return owner > 0 && ::kill(owner, 0) != 0 && errno == ESRCH;
}

bool can_run(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((std::filesystem::path(folder) / program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

}  // namespace lockstep::bench::peers
