// Contestant: the processes that train together (or beside each other), as the driver sees them.
// They live as long as the object, sleep between orders, and are gone after it whatever happened.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/peers/process.h"

namespace lockstep::bench::train {

/// How a contestant is started: one command for each of its processes.
struct Launch {
  struct Process {
    peers::Command command;
    std::vector<std::string> environment;  // NAME=value
  };
  std::string name;
  std::vector<Process> processes;
};

/// A contestant did not start, ended or fell silent.
struct ContestantFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Where a contestant of this name listens to the driver.
std::string orders_path(const std::string& directory, const std::string& name);

class Contestant {
 public:
  /// Blocks until all processes are ready. Logs and the socket are in `directory`.
  Contestant(const Launch& launch, const std::string& directory);
  ~Contestant();
  Contestant(const Contestant&) = delete;
  Contestant& operator=(const Contestant&) = delete;

  /// Every process trains so many steps; returns when the last one is done.
  void steps(int count);
  /// Of the last step, on the first replica.
  [[nodiscard]] double loss() const noexcept { return loss_; }
  /// Of the net.
  [[nodiscard]] std::int64_t parameters() const noexcept { return parameters_; }

 private:
  void start(const Launch& launch);
  [[nodiscard]] std::string hear(int socket);
  void check_children();
  void stop() noexcept;
  [[noreturn]] void fail(const std::string& what) const;

  std::string log_;
  std::string orders_;
  std::vector<peers::Child> children_;
  std::vector<int> sockets_;  // by rank
  double loss_ = 0;
  std::int64_t parameters_ = 0;
};

}  // namespace lockstep::bench::train
