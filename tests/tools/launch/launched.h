// A running `lockstep launch`, for tests that talk to it while it runs.
//
//   Launched launch({"-n", "2", "--", "sh", "-c", "echo hello"});
//   launch.wait_for("[1] hello");
//   const Finished finished = launch.finish();
//
// Everything is bounded by 20 s; a test fails then. The launcher is killed with the object.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "sys/descriptor.h"
#include "sys/proc.h"

namespace lockstep::tool {

struct Finished {
  sys::ExitStatus status;
  std::string out;
  std::string err;
};

class Launched {
 public:
  /// Arguments behind `lockstep launch`; the environment is the test's own with `more` added.
  explicit Launched(std::vector<std::string> arguments, std::vector<std::string> more = {});

  [[nodiscard]] int pid() const { return process_->pid(); }
  void signal(sys::Signal signal);
  /// Until standard output and error have this text together, or an expectation fails.
  void wait_for(const std::string& text);
  [[nodiscard]] const std::string& out() const { return out_; }
  [[nodiscard]] const std::string& err() const { return err_; }
  /// Waits for the end while reading what it writes.
  Finished finish();
  /// Waits for the end without reading anything.
  sys::ExitStatus finish_unread() { return end_by(Deadline::after(kLongest)); }

 private:
  static constexpr std::chrono::seconds kLongest{20};

  sys::ExitStatus end_by(Deadline deadline);
  /// Reads once; false if there is nothing to wait for any more.
  bool read_some(int milliseconds);

  std::unique_ptr<sys::Process> process_;
  sys::Descriptor output_;
  sys::Descriptor errors_;
  std::string out_;
  std::string err_;
};

/// Runs it to its end.
Finished launch_command(std::vector<std::string> arguments, std::vector<std::string> more = {});

/// A shell script as the program of n ranks, with options before it.
std::vector<std::string> ranks_of(int n, const std::string& script,
                                  std::vector<std::string> options = {});

/// Waits until a process is dead; false after 20 s.
bool gone(int pid);

}  // namespace lockstep::tool
