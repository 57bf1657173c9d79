// ProcessCluster: ranks as real processes of the program rank_program, for tests.
//
//   ProcessCluster cluster({.ranks = 4, .scenario = "exercise own"});
//   for (auto& rank : cluster.finish(60s)) EXPECT_EQ(rank.code, 0) << rank.text;
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sys/held_ports.h"
#include "sys/posix_proc.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep::processes {

enum class Wire : std::uint8_t {
  local,      // one host: sockets of the user's, shared memory
  tcp,        // every rank a host of its own, no key
  tls,        // the same with a key
  plaintext,  // the same, data in plain text
};
/// The key of every cluster that has one.
inline constexpr const char* kTestKey =
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
/// As the name of a test.
std::string to_string(Wire wire);

struct ClusterOptions {
  int ranks = 2;
  /// What each rank is to do; its one argument.
  std::string scenario = {};
  /// Another program than rank_program.
  std::string program = {};
  Wire wire = Wire::local;
  /// A word for each rank's host; empty: one each (not local).
  std::vector<std::string> hosts = {};
  /// "NAME=value" for all ranks, and for one of them; "NAME=" unsets.
  std::vector<std::string> environment = {};
  std::map<int, std::vector<std::string>> environment_of = {};
  /// Before the program's command, by rank: "ip netns exec x"; and the addresses to use.
  std::vector<std::vector<std::string>> wrappers = {};
  std::vector<std::string> addresses = {};
  /// Ranks that start() starts later, or nobody.
  std::vector<int> absent = {};
};

struct Outcome {
  std::optional<sys::ExitStatus> ended;  // empty: it had to be killed, or was never started
  std::string text;                      // what it wrote, both streams

  [[nodiscard]] bool ok() const { return ended && ended->success(); }
  [[nodiscard]] bool exited_with(int code) const {
    return ended && *ended == sys::ExitStatus{sys::ExitStatus::How::exited, code, false};
  }
  [[nodiscard]] std::string how() const { return ended ? ended->to_string() : "did not end"; }
};

class ProcessCluster {
 public:
  explicit ProcessCluster(const ClusterOptions& options);
  ~ProcessCluster();
  ProcessCluster(const ProcessCluster&) = delete;
  ProcessCluster& operator=(const ProcessCluster&) = delete;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  sys::Process& process(int rank) { return *ranks_[static_cast<std::size_t>(rank)].process; }
  /// A rank that was absent, or a new process in the place of one that has ended.
  void start(int rank);
  /// Until the rank has written this; false if it does not in time.
  bool wait_for(int rank, const std::string& text, std::chrono::milliseconds patience);
  /// Until all ranks have written this.
  bool wait_for_all(const std::string& text, std::chrono::milliseconds patience);
  /// Until all ranks have ended, or have been killed at the deadline.
  std::vector<Outcome> finish(std::chrono::milliseconds patience);
  [[nodiscard]] const std::string& text(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)].text;
  }
  [[nodiscard]] const std::vector<std::string>& addresses() const noexcept { return addresses_; }
  /// Of the ranks' sockets.
  [[nodiscard]] const std::string& directory() const noexcept { return directory_.path(); }

 private:
  struct Rank {
    std::unique_ptr<sys::Process> process;  // null: not started
    sys::Descriptor output;
    sys::Descriptor errors;
    std::string text;
  };
  [[nodiscard]] std::vector<std::string> environment(int rank) const;
  /// Reads what is there, waiting for some at most so long.
  void read(std::chrono::milliseconds patience);

  ClusterOptions options_;
  TemporaryDirectory directory_;
  sys::HeldPorts ports_;
  std::vector<std::string> addresses_;
  std::vector<Rank> ranks_;
};

/// Ports for addresses that a test makes up itself; nobody else is given them as long as this
/// process lives.
std::vector<int> free_ports(int count);

}  // namespace lockstep::processes
