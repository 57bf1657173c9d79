// Many ranks of several addresses join: network namespaces, which only root can make.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>

#include "sys/posix_proc.h"
#include "tests/processes/crowds.h"

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

/// Machines on one switch.
class Machines {
 public:
  explicit Machines(int count) : count_(count), prefix_(fmt::format("lscrowd{}-", ::getpid())) {
    const std::string switch_space = prefix_ + "switch";
    run({"ip", "netns", "add", switch_space});
    run({"ip", "-n", switch_space, "link", "add", "switch", "type", "bridge"});
    run({"ip", "-n", switch_space, "link", "set", "switch", "up"});
    for (int machine = 0; machine < count; ++machine) {
      const std::string space = fmt::format("{}{}", prefix_, machine);
      const std::string port = fmt::format("port{}", machine);
      run({"ip", "netns", "add", space});
      run({"ip", "link", "add", "eth", "netns", space, "type", "veth", "peer", "name", port,
           "netns", switch_space});
      run({"ip", "-n", switch_space, "link", "set", port, "master", "switch"});
      run({"ip", "-n", switch_space, "link", "set", port, "up"});
      run({"ip", "-n", space, "address", "add", host(machine) + "/24", "dev", "eth"});
      run({"ip", "-n", space, "link", "set", "eth", "up"});
      run({"ip", "-n", space, "link", "set", "lo", "up"});
    }
  }
  ~Machines() {
    (void)succeeds({"ip", "netns", "delete", prefix_ + "switch"});
    for (int machine = 0; machine < count_; ++machine) {
      (void)succeeds({"ip", "netns", "delete", fmt::format("{}{}", prefix_, machine)});
    }
  }
  Machines(const Machines&) = delete;
  Machines& operator=(const Machines&) = delete;

  static std::string host(int machine) { return fmt::format("10.214.7.{}", machine + 1); }
  [[nodiscard]] Words command(int machine) const {
    return {"ip", "netns", "exec", fmt::format("{}{}", prefix_, machine)};
  }

 private:
  static bool succeeds(const Words& words) {
    sys::Command command;
    command.argv = words;
    command.output = sys::Command::Output::pipe;
    const auto ended = sys::PosixProcesses().spawn(command)->wait(Deadline::after(10s));
    return ended && ended->success();
  }
  static void run(const Words& words) {
    if (!succeeds(words)) {
      throw std::runtime_error(fmt::format("failed: {}", fmt::join(words, " ")));
    }
  }

  int count_;
  std::string prefix_;
};

/// Each rank counts as a host, so that all connections are made, and none in shared memory.
TEST(LargeCrowds, F1RanksOfEightAddressesJoinWithAKey) {
  constexpr int kMachines = 8;
  const Machines machines(kMachines);
  ClusterOptions options{.ranks = kCrowd};
  for (int rank = 0; rank < kCrowd; ++rank) {
    const int machine = rank % kMachines;
    options.wrappers.push_back(machines.command(machine));
    options.addresses.push_back(fmt::format("{}:{}", Machines::host(machine), 5000 + rank));
    options.hosts.push_back(fmt::format("host{}", rank));
  }
  join_again_and_again(options);
}

}  // namespace
}  // namespace lockstep::processes
