// Processes: programs started and watched by this one.
//
// The simulated processes in sim/ implement the same interface.
//
//   auto worker = processes.spawn({.argv = {"/usr/bin/train", "--rank=1"}});
//   if (auto ended = worker->wait(deadline)) report(worker->pid(), ended->to_string());
//   else worker->signal(Signal::terminate);
//
// Thread rule: one thread at a time uses a Process; spawn() may be called from any.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "sys/descriptor.h"

namespace lockstep::sys {

struct Command {
  enum class Input : unsigned char { inherit, empty };
  enum class Output : unsigned char { inherit, pipe };
  /// own: it leads a process group. Signals go to the whole group, and what is left of the group
  /// is killed when the end of the process is noticed.
  enum class Group : unsigned char { inherit, own };

  std::vector<std::string> argv;  // a program without '/' is looked up in PATH
  /// "NAME=value" each, and nothing else; absent: this process's own.
  std::optional<std::vector<std::string>> environment = std::nullopt;
  std::string directory = {};  // where it starts; empty: here
  Input input = Input::inherit;
  Output output = Output::inherit;  // standard output and standard error, a pipe each
  Group group = Group::inherit;

  /// For messages; quoted where a shell would need it.
  [[nodiscard]] std::string to_string() const;
};

enum class Signal : unsigned char {
  hangup,
  interrupt,
  terminate,
  kill,
  stop,
  resume,
  user1,
  user2
};
std::string_view to_string(Signal signal) noexcept;

/// How a process ended.
struct ExitStatus {
  enum class How : unsigned char {
    exited,     // value: what main returned
    signalled,  // value: the number of the signal
    unknown,    // somebody else took the status (a SIGCHLD handler, SIGCHLD ignored)
  };
  How how = How::exited;
  int value = 0;
  bool core_dumped = false;

  [[nodiscard]] bool success() const noexcept { return how == How::exited && value == 0; }
  /// "exited with 3", "killed by signal 9 (KILL)", "killed by signal 11 (SEGV), core dumped".
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

class Process {
 public:
  /// Kills the process if it still runs, and waits a second at most for it to go.
  virtual ~Process() = default;
  [[nodiscard]] virtual int pid() const noexcept = 0;
  /// Code not_found if it has ended. Never hits another process that got the same pid.
  virtual Status signal(Signal which) = 0;
  /// How it ended; empty while it runs or is stopped.
  virtual std::optional<ExitStatus> poll() = 0;
  /// Waits for the end; empty at the deadline.
  virtual std::optional<ExitStatus> wait(Deadline deadline) = 0;

  /// Becomes readable when the process has ended: for one poll(2) over many. Stays ours.
  [[nodiscard]] virtual int end_descriptor() = 0;
  /// The read ends of its pipes, non-blocking; each is given away once, invalid without a pipe.
  [[nodiscard]] virtual Descriptor take_output() = 0;
  [[nodiscard]] virtual Descriptor take_errors() = 0;
};

class Processes {
 public:
  virtual ~Processes() = default;
  /// InvalidUsage for an empty argv, SystemError naming the program and the cause if it cannot be
  /// started. The child has default signals, none blocked, and of our files the standard ones only.
  virtual std::unique_ptr<Process> spawn(const Command& command) = 0;
};

}  // namespace lockstep::sys
