// Child processes of the driver.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep::bench::peers {

using Command = std::vector<std::string>;

/// Ctrl-C and its like arrive as this exception, so that everything that was made is removed.
struct Interrupted {};
/// Turns SIGINT, SIGTERM and SIGHUP into a flag; waits of the driver end early with EINTR.
void catch_signals();
/// Throws Interrupted if such a signal has arrived.
void check_interrupted();

/// A program with a process group of its own and its output in a file. It is killed when the driver
/// dies, and by the destructor if it still runs.
class Child {
 public:
  Child(const Command& command, const std::vector<std::string>& environment,
        const std::string& output);
  ~Child();
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;

  /// Has it ended? Does not wait.
  [[nodiscard]] bool ended();
  void kill();

 private:
  pid_t pid_ = -1;  // -1: over
};

/// Runs a short command; throws with its output if it fails.
void run_command(const Command& command);

/// What the driver makes outside of its processes is called kPrefix, its process number, "-" and
/// something; so the next run can tell what a killed one has left behind.
inline constexpr const char* kPrefix = "lockstep-peers-";
std::string own_name();
/// Is that the name of something whose driver is gone?
bool left_behind(const std::string& name);

/// Is there such a program in PATH?
bool can_run(const std::string& program);

}  // namespace lockstep::bench::peers
