// Processes: simulated programs, seen by a launcher through sys/proc.h.
//
// A program is a function installed under its path; spawn() calls it once, soon after, with the
// Running process it is. It goes on through events of its own (after()) or is driven from outside
// by somebody who asks runs(). It ends by exit() or by a signal; a stopped one does nothing until
// resumed: what came due meanwhile happens then. Its pipes are real ones, filled by print() in
// virtual time.
//
//   Processes processes(world);
//   processes.install("worker", [&](Running& self) {
//     self.on_end([&] { network.kill("host1"); });
//     self.after(5ms, [&self] { self.exit(3); });
//   });
//   auto worker = processes.spawn({.argv = {"worker"}});
//   worker->wait(Deadline::after(world, 1s))->to_string();      // "exited with 3"
//
// Ownership: the World outlives this, this outlives the handles. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/world.h"
#include "sys/descriptor.h"
#include "sys/proc.h"

namespace lockstep::sim {

/// A process from the inside. Lives as long as its Processes, ended or not.
class Running {
 public:
  /// SystemError if the pipes the command asks for cannot be had.
  Running(World& world, int pid, sys::Command command);
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  [[nodiscard]] int pid() const noexcept { return pid_; }
  [[nodiscard]] const sys::Command& command() const noexcept { return command_; }
  /// Neither stopped nor ended: may act now.
  [[nodiscard]] bool runs() const noexcept { return !stopped_ && !status_; }
  [[nodiscard]] bool stopped() const noexcept { return stopped_ && !status_; }
  [[nodiscard]] const std::optional<sys::ExitStatus>& status() const noexcept { return status_; }

  /// Does something later, unless the process has ended by then.
  void after(Duration wait, std::function<void()> act);
  void exit(int value);
  /// Writes to a pipe as a program would; lost without a pipe, and where the pipe is full.
  void print(std::string_view text) { write(output_, text); }
  void print_error(std::string_view text) { write(errors_, text); }
  /// Replaces what a signal does; kill, stop and resume cannot be caught.
  void on_signal(sys::Signal which, std::function<void()> act);
  /// Called once, when the process has ended, however.
  void on_end(std::function<void()> act) { on_end_.push_back(std::move(act)); }

  /// For the handle, as sys::Process gives them.
  int end_descriptor();
  sys::Descriptor take_output() { return std::move(output_.reads); }
  sys::Descriptor take_errors() { return std::move(errors_.reads); }

  /// A signal takes effect after a moment given by the seed.
  void receive(sys::Signal which);

 private:
  struct Pipe {
    sys::Descriptor reads;
    sys::Descriptor writes;
  };

  static Pipe open_pipe();
  static void write(const Pipe& pipe, std::string_view text);
  void deliver(sys::Signal which);
  void act_or_defer(const std::function<void()>& act);
  void end(sys::ExitStatus status);

  World& world_;
  int pid_;
  sys::Command command_;
  bool stopped_ = false;
  std::optional<sys::ExitStatus> status_;
  Pipe output_;
  Pipe errors_;
  sys::Descriptor ended_;  // made when somebody asks
  std::map<sys::Signal, std::function<void()>> handlers_;
  std::vector<std::function<void()>> on_end_;
  std::vector<std::function<void()>> deferred_;  // due while stopped
};

class Processes final : public sys::Processes {
 public:
  using Program = std::function<void(Running&)>;

  explicit Processes(World& world) : world_(world) {}
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  /// What argv[0] may name.
  void install(const std::string& path, Program program);
  std::unique_ptr<sys::Process> spawn(const sys::Command& command) override;
  /// Null if there never was such a process.
  Running* find(int pid) noexcept;

 private:
  static constexpr int kFirstPid = 1000;

  World& world_;
  std::map<std::string, Program> programs_;
  std::vector<std::unique_ptr<Running>> running_;  // by pid - kFirstPid
};

}  // namespace lockstep::sim
