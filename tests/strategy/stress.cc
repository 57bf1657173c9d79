// Many meetings of many lanes, with delays and exceptions at random places: nothing hangs, nothing
// leaks, every context is restored, every sum is right. `make stress` runs it; a hang ends it with
// the seed that shows it.
//
//   strategy_stress [--merges 100000] [--seed 1] [--lanes 2,4,8]
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

struct Planned : std::exception {};  // what lanes throw on purpose

struct Load {
  int merges = 0;      // of this run
  int thrower = -1;    // lane that throws, n for the merge function, -1 for nobody
  int throw_at = 0;    // merge it throws at
  unsigned delay = 0;  // seed of the delays
};

struct Totals {
  long long merges = 0;
  long long runs = 0;
  long long thrown = 0;
};

int entries(const char* directory) {
  const auto all = std::filesystem::directory_iterator(directory);
  return static_cast<int>(std::distance(begin(all), end(all)));
}

void maybe_wait(std::minstd_rand& random) {
  // Mostly nothing, sometimes some microseconds, seldom a whole time slice.
  const auto dice = random() % 1000;
  const auto wait = std::chrono::microseconds(dice < 900 ? 0 : dice < 998 ? dice % 20 : 300);
  const auto until = std::chrono::steady_clock::now() + wait;
  while (std::chrono::steady_clock::now() < until) {
  }
}

[[noreturn]] void wrong(const std::string& what) {
  std::printf("FAILED: %s\n", what.c_str());
  std::exit(1);
}

void step(ReplicaContext& replica, const Load& load) {
  const int self = replica.replica_id_in_sync_group();
  const int lanes = replica.num_replicas_in_sync();
  std::minstd_rand random(load.delay + static_cast<unsigned>(self));
  for (int i = 0; i < load.merges; ++i) {
    maybe_wait(random);
    if (load.thrower == self && load.throw_at == i) throw Planned();
    const int sum = replica.merge_call(
        [&load, i](Strategy& strategy, const PerReplica<int>& each) {
          if (load.thrower == each.size() && load.throw_at == i) throw Planned();
          if (!in_cross_replica_context() || &get_strategy() != &strategy) wrong("merge context");
          int total = 0;
          for (int k = 0; k < each.size(); ++k) total += each[k];
          return total;
        },
        self + i);
    if (sum != lanes * (lanes - 1) / 2 + lanes * i) wrong("a sum is not right");
    if (get_replica_context() != &replica) wrong("replica context");
  }
}

void run_lanes(int lanes, long long merges, unsigned seed) {
  std::thread([] {}).join();  // ThreadSanitizer's own comes with the first, and stays
  MirroredOptions options;
  for (int i = 0; i < lanes; ++i) options.devices.emplace_back(fmt::format("CPU:{}", i));
  const int threads_before = entries("/proc/self/task");
  const int files_before = entries("/proc/self/fd");
  const auto begin = std::chrono::steady_clock::now();
  Totals totals;
  {
    MirroredStrategy strategy(options);
    std::mt19937 random(seed);
    while (totals.merges < merges) {
      Load load{.merges = 1 + static_cast<int>(random() % 100),
                .delay = static_cast<unsigned>(random())};
      if (random() % 10 == 0) {
        load.thrower = static_cast<int>(random() % static_cast<unsigned>(lanes + 1));
        load.throw_at = static_cast<int>(random() % static_cast<unsigned>(load.merges));
      }
      const RunOptions how{
          .execution = random() % 20 == 0 ? std::optional(Execution::sequential) : std::nullopt,
          .global_batch_size = {}};
      bool caught = false;
      try {
        strategy.run(how, [&](ReplicaContext& replica) { step(replica, load); });
      } catch (const Planned&) {
        caught = true;
      }
      if (caught != (load.thrower >= 0)) wrong("an exception was lost, or came from nowhere");
      if (has_strategy() || in_cross_replica_context()) wrong("the context was not restored");
      totals.merges += caught ? load.throw_at : load.merges;
      totals.thrown += caught ? 1 : 0;
      ++totals.runs;
    }
  }
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (entries("/proc/self/task") != threads_before) wrong("a thread was left behind");
  if (entries("/proc/self/fd") != files_before) wrong("a file was left open");
  std::printf("%5d  %9lld  %7lld  %10lld  %7.1f s  %8.2f us\n", lanes, totals.merges, totals.runs,
              totals.thrown, took, 1e6 * took / static_cast<double>(totals.merges));
  std::fflush(stdout);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  long long merges = 100'000;
  unsigned seed = 1;
  std::vector<int> lanes = {2, 4, 8};
  CLI::App app("Stress test of merge_call.");
  app.add_option("--merges", merges, "for each number of lanes")->capture_default_str();
  app.add_option("--seed", seed)->capture_default_str();
  app.add_option("--lanes", lanes)->delimiter(',')->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  // A hang is the one failure that cannot report itself.
  std::signal(SIGALRM, [](int) {
    constexpr char text[] = "FAILED: hung\n";
    static_cast<void>(!write(STDOUT_FILENO, text, sizeof text - 1));
    _exit(1);
  });
  std::printf("lanes     merges     runs  exceptions     time     a merge   (seed %u)\n", seed);
  for (const int count : lanes) {
    alarm(600);
    lockstep::run_lanes(count, merges, seed);
  }
  std::printf("no hang, no leak, every context restored\n");
  return 0;
}
