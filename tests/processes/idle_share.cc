// Idle share: what share of a core the ranks of one machine use while nobody calls anything. Each
// rank sends and reads pulses; rank 0 has a control connection to every other one.
//
//   idle_share --ranks 256 --wire tcp     exit code 1 if rank 0 uses more than the target
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "tests/processes/cluster.h"

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;

constexpr double kTarget = 3.0;  // percent of a core
constexpr auto kSettle = 2s;     // after joining

/// Nanoseconds that the threads of a process have run so far.
std::uint64_t nanoseconds(int pid) {
  std::uint64_t sum = 0;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid))) {
    std::uint64_t own = 0;
    std::ifstream(task.path() / "schedstat") >> own;
    sum += own;
  }
  return sum;
}

int run(int ranks, Wire wire, int seconds) {
  const int rest = seconds + 60;  // they are killed before
  ProcessCluster cluster({.ranks = ranks,
                          .scenario = fmt::format("rest {}", rest),
                          .wire = wire,
                          .environment = {"LOCKSTEP_HOST=here"}});
  const auto began = std::chrono::steady_clock::now();
  if (!cluster.wait_for_all("resting", 60s)) {
    fmt::print("the ranks have not joined:\n{}\n", cluster.text(0));
    return 2;
  }
  const std::chrono::duration<double> joined = std::chrono::steady_clock::now() - began;
  std::this_thread::sleep_for(kSettle);
  const int pid = cluster.process(0).pid();
  const int other = cluster.process(ranks / 2).pid();
  const std::uint64_t before = nanoseconds(pid);
  const std::uint64_t other_before = nanoseconds(other);
  const auto start = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  const std::chrono::duration<double, std::nano> span = std::chrono::steady_clock::now() - start;
  const auto percent = [&](std::uint64_t from, std::uint64_t to) {
    return 100.0 * static_cast<double>(to - from) / span.count();
  };
  const double share = percent(before, nanoseconds(pid));
  fmt::print(
      "{} ranks over {}, joined in {:.1f} s, idle for {} s: rank 0 used {:.2f} % of a core, "
      "rank {} {:.2f} %\n",
      ranks, to_string(wire), joined.count(), seconds, share, ranks / 2,
      percent(other_before, nanoseconds(other)));
  return share < kTarget ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::processes

int main(int argc, char** argv) {
  using lockstep::processes::Wire;
  int ranks = 256;
  int seconds = 10;
  Wire wire = Wire::local;
  CLI::App app("What rank 0 costs while nobody calls anything");
  app.add_option("--ranks", ranks);
  app.add_option("--seconds", seconds);
  app.add_option("--wire", wire)
      ->transform(CLI::CheckedTransformer(std::map<std::string, Wire>{
          {"local", Wire::local}, {"tcp", Wire::tcp}, {"tls", Wire::tls}}));
  CLI11_PARSE(app, argc, argv);
  return lockstep::processes::run(ranks, wire, seconds);
}
