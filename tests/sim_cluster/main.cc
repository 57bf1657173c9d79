// lockstep_sim: runs seeded schedules of a simulated cluster and stops at the first that goes
// wrong.
//
//   lockstep_sim --seeds 20000 --jobs 2
//   lockstep_sim --seed 4711                  one schedule, with a trace
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/log.h"
#include "tests/sim_cluster/cluster.h"

namespace lockstep::simulated {
namespace {

struct Tally {
  struct Row {
    int schedules = 0;
    int struck = 0;   // the fault came before the end
    int noticed = 0;  // and the generation ended
  };
  std::array<Row, kFaultCount> by_fault{};
  int in_memory = 0;
  long operations = 0;
  int failures = 0;
  int hangs = 0;
  double simulated_seconds = 0;
};

int run_many(std::uint64_t first, std::uint64_t count, int jobs) {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<std::uint64_t> next = first;
  std::atomic<bool> stop = false;
  std::mutex mutex;
  Tally tally;
  const auto work = [&] {
    while (!stop) {
      const std::uint64_t seed = next.fetch_add(1);
      if (seed >= first + count) return;
      const Schedule schedule = make_schedule(seed);
      const Outcome outcome = run(schedule);
      const std::lock_guard lock(mutex);
      auto& row = tally.by_fault[static_cast<std::size_t>(schedule.fault)];
      ++row.schedules;
      row.struck += outcome.struck ? 1 : 0;
      row.noticed += outcome.noticed ? 1 : 0;
      tally.in_memory += schedule.transport == Transport::memory ? 1 : 0;
      tally.operations += outcome.operations;
      tally.hangs += outcome.hung ? 1 : 0;
      tally.simulated_seconds += std::chrono::duration<double>(outcome.simulated).count();
      if (outcome.problem.empty()) continue;
      ++tally.failures;
      fmt::print("seed={} {}\n  {}\n  again: make sim SEED={}\n", seed, to_string(schedule.fault),
                 outcome.problem, seed);
      stop = tally.failures >= 5;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i < jobs; ++i) threads.emplace_back(work);
    work();
  }
  int schedules = 0;
  std::string faults;
  for (int i = 0; i < kFaultCount; ++i) {
    const auto& row = tally.by_fault[static_cast<std::size_t>(i)];
    schedules += row.schedules;
    faults += fmt::format("\n  {:<12}{:>7} schedules {:>7} struck {:>7} ended the generation",
                          to_string(static_cast<Fault>(i)), row.schedules, row.struck, row.noticed);
  }
  fmt::print(
      "{} schedules ({} in memory), {} operations, {} failures, {} hangs, {:.0f} s simulated "
      "in {:.1f} s{}\n",
      schedules, tally.in_memory, tally.operations, tally.failures, tally.hangs,
      tally.simulated_seconds,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), faults);
  return tally.failures == 0 ? 0 : 1;
}

int run_one(std::uint64_t seed) {
  const Outcome outcome = run(make_schedule(seed), Planted::none, Trace::print);
  if (outcome.problem.empty()) {
    fmt::print("seed={}: all right\n", seed);
    return 0;
  }
  fmt::print("seed={}: {}\n", seed, outcome.problem);
  return 1;
}

}  // namespace
}  // namespace lockstep::simulated

int main(int argc, char** argv) try {
  CLI::App app{"Runs seeded schedules of a simulated lockstep cluster"};
  std::uint64_t seeds = 1000;
  std::uint64_t first = 1;
  std::optional<std::uint64_t> seed;
  int jobs = 1;
  app.add_option("--seeds", seeds, "How many schedules");
  app.add_option("--first-seed", first, "The first of them");
  app.add_option("--seed", seed, "One schedule only, with a trace");
  app.add_option("--jobs", jobs, "Threads")->check(CLI::Range(1, 1024));
  CLI11_PARSE(app, argc, argv);
  lockstep::set_log_level(lockstep::LogLevel::off);
  return seed ? lockstep::simulated::run_one(*seed)
              : lockstep::simulated::run_many(first, seeds, jobs);
} catch (const std::exception& e) {
  std::fputs(e.what(), stderr);
  return 2;
}
