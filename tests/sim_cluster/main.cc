// lockstep_sim: runs seeded schedules of simulated clusters and stops at the first that go wrong. A
// seed is two schedules: one of operations and control planes alone, one of whole processes.
//
//   lockstep_sim --seeds 20000 --jobs 2
//   lockstep_sim --seed 4711                     the schedules of one seed, with a trace
//   lockstep_sim --seed 4711 --only processes    one of them
//   lockstep_sim --ranks 1024                    one large job, and what it costs rank 0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/log.h"
#include "tests/sim_cluster/cluster.h"
#include "tests/sim_cluster/large_job.h"
#include "tests/sim_cluster/process_cluster.h"

namespace lockstep::simulated {
namespace {

/// Which schedules of a seed.
struct Chosen {
  bool operations = true;
  bool processes = true;
};

struct Row {
  int schedules = 0;
  int struck = 0;   // the fault came before the end
  int noticed = 0;  // and the generation ended

  void add(const Outcome& outcome) {
    ++schedules;
    struck += outcome.struck ? 1 : 0;
    noticed += outcome.noticed ? 1 : 0;
  }
};

/// What came of the schedules of one kind.
template <std::size_t faults>
struct Tally {
  std::array<Row, faults> by_fault{};
  int schedules = 0;
  long operations = 0;
  int failures = 0;
  int hangs = 0;
  int known = 0;
  double simulated_seconds = 0;

  void add(const Outcome& outcome) {
    ++schedules;
    operations += outcome.operations;
    failures += outcome.problem.empty() ? 0 : 1;
    hangs += outcome.hung && !outcome.known ? 1 : 0;
    known += outcome.known ? 1 : 0;
    simulated_seconds += std::chrono::duration<double>(outcome.simulated).count();
  }
  template <class Fault>
  void print(const char* what, const std::string& more) const {
    if (schedules == 0) return;
    fmt::print(
        "{} schedules of {}{}, {} operations, {} failures, {} hangs ({} known), {:.0f} s "
        "simulated\n",
        schedules, what, more, operations, failures, hangs, known, simulated_seconds);
    for (std::size_t i = 0; i < faults; ++i) {
      fmt::print("  {:<12}{:>7} schedules {:>7} struck {:>7} ended the generation\n",
                 to_string(static_cast<Fault>(i)), by_fault[i].schedules, by_fault[i].struck,
                 by_fault[i].noticed);
    }
  }
};

class Runs {
 public:
  /// Ends early after `most_failures`.
  Runs(std::uint64_t first, std::uint64_t count, int most_failures, Chosen chosen)
      : next_(first), end_(first + count), most_failures_(most_failures), chosen_(chosen) {}

  int run(int jobs) {
    const auto start = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> threads;
      for (int i = 1; i < jobs; ++i) threads.emplace_back([this] { work(); });
      work();
    }
    operations_.print<Fault>("operations", fmt::format(" ({} in memory)", in_memory_));
    processes_.print<Damage>("processes", fmt::format(" ({} with a key)", with_key_));
    fmt::print("{} failures in {:.1f} s\n", failures_,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return failures_ == 0 ? 0 : 1;
  }

 private:
  void work() {
    while (failures_ < most_failures_) {
      const std::uint64_t seed = next_.fetch_add(1);
      if (seed >= end_) return;
      if (chosen_.operations) run_operations(seed);
      if (chosen_.processes) run_processes(seed);
    }
  }

  void run_operations(std::uint64_t seed) {
    const Schedule schedule = make_schedule(seed);
    const Outcome outcome = simulated::run(schedule);
    const std::lock_guard lock(mutex_);
    operations_.add(outcome);
    operations_.by_fault[static_cast<std::size_t>(schedule.fault)].add(outcome);
    in_memory_ += schedule.transport == Transport::memory ? 1 : 0;
    complain(seed, "operations", to_string(schedule.fault), outcome);
  }

  void run_processes(std::uint64_t seed) {
    const ProcessSchedule schedule = make_process_schedule(seed);
    const Outcome outcome = simulated::run(schedule);
    const std::lock_guard lock(mutex_);
    processes_.add(outcome);
    std::string faults;
    for (const Strike& strike : schedule.strikes) {
      processes_.by_fault[static_cast<std::size_t>(strike.damage)].add(outcome);
      faults += (faults.empty() ? "" : ", ") + describe(strike);
    }
    with_key_ += schedule.has_key ? 1 : 0;
    complain(seed, "processes", faults, outcome);
  }

  void complain(std::uint64_t seed, const char* which, const std::string& faults,
                const Outcome& outcome) {
    if (outcome.problem.empty()) return;
    ++failures_;
    fmt::print("seed={} of {}: {}\n  {}\n  again: make sim SEED={}\n", seed, which, faults,
               outcome.problem, seed);
    std::fflush(stdout);
  }

  std::atomic<std::uint64_t> next_;
  std::uint64_t end_;
  int most_failures_;
  Chosen chosen_;
  std::atomic<int> failures_ = 0;
  std::mutex mutex_;
  Tally<kFaultCount> operations_;
  Tally<kDamageCount> processes_;
  int in_memory_ = 0;
  int with_key_ = 0;
};

int report(std::uint64_t seed, const char* which, const Outcome& outcome) {
  fmt::print("seed={} of {}: {}\n", seed, which,
             outcome.problem.empty() ? "all right" : outcome.problem);
  return outcome.problem.empty() ? 0 : 1;
}

int run_one(std::uint64_t seed, Chosen chosen) {
  int status = 0;
  if (chosen.operations) {
    const Outcome outcome = run(make_schedule(seed), Planted::none, Trace::print);
    status |= report(seed, "operations", outcome);
  }
  if (chosen.processes) {
    const Outcome outcome = run(make_process_schedule(seed), Trace::print);
    status |= report(seed, "processes", outcome);
  }
  return status;
}

}  // namespace
}  // namespace lockstep::simulated

int main(int argc, char** argv) try {
  CLI::App app{"Runs seeded schedules of simulated lockstep clusters"};
  std::uint64_t seeds = 1000;
  std::uint64_t first = 1;
  std::optional<std::uint64_t> seed;
  std::optional<int> ranks;
  std::string only;
  int jobs = 1;
  int most_failures = 5;
  app.add_option("--seeds", seeds, "How many seeds");
  app.add_option("--first-seed", first, "The first of them");
  app.add_option("--seed", seed, "One seed only, with a trace");
  app.add_option("--only", only, "Schedules of one kind")
      ->check(CLI::IsMember({"operations", "processes"}));
  app.add_option("--ranks", ranks, "One job of so many processes, with what it costs rank 0")
      ->check(CLI::Range(2, 4096));
  app.add_option("--failures", most_failures, "Stop after so many");
  app.add_option("--jobs", jobs, "Threads")->check(CLI::Range(1, 1024));
  CLI11_PARSE(app, argc, argv);
  // A trace shows what the ranks log.
  if (!seed) lockstep::set_log_level(lockstep::LogLevel::off);
  namespace simulated = lockstep::simulated;
  if (ranks) return simulated::run_large_job(*ranks);
  const simulated::Chosen chosen{.operations = only != "processes",
                                 .processes = only != "operations"};
  return seed ? simulated::run_one(*seed, chosen)
              : simulated::Runs(first, seeds, most_failures, chosen).run(jobs);
} catch (const std::exception& e) {
  std::fputs(e.what(), stderr);
  return 2;
}
