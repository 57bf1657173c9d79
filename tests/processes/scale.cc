// Scale: clusters of many real processes on this machine, with and without a key: how long they
// take to join, what rank 0 and the others cost while nobody does anything, what a rank holds, the
// first operations, a kill and leaving. And plans of 1,024 ranks.
//
//   scale                        64, 128 and 256 processes; exit code 1 if a cluster failed or a
//                                target was missed
//   scale --sizes 16,32          others
//
// With a key every rank counts as a host of its own, so that nothing but TLS connects them. Without
// one they share memory.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/support/paired.h"
#include "plan/select.h"
#include "sys/descriptor_limit.h"
#include "tests/processes/cluster.h"
#include "tests/processes/scenarios.h"
#include "tests/processes/verdict.h"

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;

constexpr double kJoinSeconds = 5;
constexpr double kJoinSecondsWithKey = 10;
constexpr double kIdlePercent = 3;  // of a core, rank 0
constexpr int kPlanRanks = 1024;
constexpr double kPlanMilliseconds = 50;
constexpr double kPlanBytes = 1 << 20;

struct Settings {
  std::vector<int> sizes = {64, 128, 256};
  double idle = 5;
  bool targets = true;
};

/// What one cluster showed.
struct Figures {
  double start_s = 0;        // until all processes were started
  double join_s = 0;         // until all have joined
  double all_reduce_ms = 0;  // of the slowest rank
  double all_gather_ms = 0;
  double split_ms = 0;
  double idle_percent_0 = 0;  // of a core
  double idle_percent = 0;    // the others' median
  std::int64_t descriptors_0 = 0;
  std::int64_t descriptors = 0;  // the others' most
  double memory_mib_0 = 0;
  double memory_mib = 0;   // the others' median
  double segment_mib = 0;  // of all ranks together
  double kill_ms = 0;
  double leave_ms = 0;
};

/// The number after these words in what each rank wrote.
std::vector<double> each(const std::vector<Outcome>& outcomes, const std::string& words) {
  std::vector<double> values;
  for (const Outcome& outcome : outcomes) {
    values.push_back(static_cast<double>(number_after(outcome.text, words).value_or(0)));
  }
  return values;
}

double most(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

double median_of_others(const std::vector<double>& values) {
  return bench::quantile({values.begin() + 1, values.end()}, 0.5);
}

class Report {
 public:
  void fault(const std::string& what) {
    fmt::print("  FAILED: {}\n", what);
    ++faults_;
  }
  [[nodiscard]] int faults() const noexcept { return faults_; }

 private:
  int faults_ = 0;
};

ClusterOptions options_for(int ranks, Wire wire) {
  return {.ranks = ranks, .wire = wire, .environment = {"TEST_JOIN_MS=60000"}};
}

/// A fault if a rank did not come that far.
bool all_ready(ProcessCluster& cluster, Report& report) {
  if (cluster.wait_for_all("ready\n", 120s)) return true;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    if (cluster.text(rank).find("ready\n") != std::string::npos) continue;
    report.fault(fmt::format("rank {} did not come that far:\n{}", rank, cluster.text(rank)));
    break;  // the others have the same to say
  }
  return false;
}

void read_figures(const std::vector<Outcome>& outcomes, std::int64_t started, Figures& figures) {
  figures.join_s = (most(each(outcomes, "joined at ")) - static_cast<double>(started)) / 1e6;
  figures.all_reduce_ms = most(each(outcomes, "first all_reduce took ")) / 1e3;
  figures.all_gather_ms = most(each(outcomes, "first all_gather took ")) / 1e3;
  figures.split_ms = most(each(outcomes, "first split took ")) / 1e3;
  std::vector<double> busy = each(outcomes, "idle: busy ");
  std::vector<double> of;
  for (const Outcome& outcome : outcomes) {
    const std::size_t at = outcome.text.find("idle: busy ");
    of.push_back(static_cast<double>(number_after(outcome.text.substr(at), " of ").value_or(1)));
  }
  for (std::size_t i = 0; i < busy.size(); ++i) busy[i] *= 100 / of[i];
  figures.idle_percent_0 = busy.front();
  figures.idle_percent = median_of_others(busy);
  std::vector<double> descriptors = each(outcomes, "holds ");
  figures.descriptors_0 = static_cast<std::int64_t>(descriptors.front());
  descriptors.front() = 0;
  figures.descriptors = static_cast<std::int64_t>(most(descriptors));
  const std::vector<double> memory = each(outcomes, "private memory ");
  figures.memory_mib_0 = memory.front() / 1024;
  figures.memory_mib = median_of_others(memory) / 1024;
  figures.segment_mib = each(outcomes, "segment ").front() / 1024;
}

/// Joins, works, idles; then one rank is killed and the others must all name it.
bool run_until_kill(int ranks, Wire wire, double idle, Figures& figures, Report& report) {
  const int victim = ranks / 2;
  ClusterOptions options = options_for(ranks, wire);
  options.scenario = fmt::format("scale {} {}", idle, victim);
  const std::int64_t started = now_us();
  ProcessCluster cluster(options);
  figures.start_s = static_cast<double>(now_us() - started) / 1e6;
  if (!all_ready(cluster, report)) return false;
  const std::int64_t killed = now_us();
  (void)cluster.process(victim).signal(sys::Signal::kill);
  const auto outcomes = cluster.finish(30s);
  read_figures(outcomes, started, figures);
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == victim) continue;
    const auto verdict = verdict_in(outcomes[static_cast<std::size_t>(rank)].text);
    if (!verdict || verdict->kind != "PeerLost" || verdict->culprits != std::vector<int>{victim}) {
      report.fault(fmt::format("rank {} does not name rank {}, which was killed:\n{}", rank, victim,
                               outcomes[static_cast<std::size_t>(rank)].text));
      return false;
    }
    figures.kill_ms = std::max(figures.kill_ms, static_cast<double>(verdict->at_us - killed) / 1e3);
  }
  return true;
}

/// Joins again, and all leave in good order.
bool run_and_leave(int ranks, Wire wire, Figures& figures, Report& report) {
  ClusterOptions options = options_for(ranks, wire);
  options.scenario = "scale 0";
  ProcessCluster cluster(options);
  if (!all_ready(cluster, report)) return false;
  const std::int64_t leaving = now_us();
  const auto outcomes = cluster.finish(30s);
  figures.leave_ms = static_cast<double>(now_us() - leaving) / 1e3;
  for (int rank = 0; rank < ranks; ++rank) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    if (outcome.ok()) continue;
    report.fault(fmt::format("rank {} {}:\n{}", rank, outcome.how(), outcome.text));
    return false;
  }
  return true;
}

void print(const Figures& f) {
  fmt::print("  all processes started after {:.2f} s, all ranks joined after {:.2f} s\n", f.start_s,
             f.join_s);
  fmt::print("  first all_reduce {:.1f} ms, all_gather {:.1f} ms, split {:.1f} ms\n",
             f.all_reduce_ms, f.all_gather_ms, f.split_ms);
  fmt::print("  idle: rank 0 {:.2f} % of a core, the others {:.2f} %\n", f.idle_percent_0,
             f.idle_percent);
  fmt::print("  descriptors: rank 0 {}, the others up to {}\n", f.descriptors_0, f.descriptors);
  fmt::print(
      "  private memory: rank 0 {:.1f} MiB, the others {:.1f} MiB; shared by all {:.1f} MiB\n",
      f.memory_mib_0, f.memory_mib, f.segment_mib);
  fmt::print("  a kill is known to all after {:.1f} ms; all have left after {:.0f} ms\n", f.kill_ms,
             f.leave_ms);
}

struct LargestPlan {
  double ms = 0;
  std::size_t bytes = 0;
  std::string slowest;
  std::string largest;
};

/// The plans that 1,024 ranks of as many hosts, of 128 and of one would choose.
LargestPlan largest_plan() {
  LargestPlan result;
  const plan::Costs costs;
  const plan::Overrides overrides;
  for (const int hosts : {1, 128, kPlanRanks}) {
    std::vector<int> host;
    for (int rank = 0; rank < kPlanRanks; ++rank) host.push_back(rank * hosts / kPlanRanks);
    const plan::Layout layout(std::vector<int>(kPlanRanks, 1), host);
    for (int kind = 0; kind < plan::kKindCount; ++kind) {
      for (const std::uint64_t bytes : {4ULL << 10, 1ULL << 20, 400'000'000ULL, 1ULL << 36}) {
        plan::Request request{.kind = static_cast<plan::Kind>(kind), .count = bytes / 4};
        if (request.kind == plan::Kind::all_to_all) request.count = bytes / 4 / kPlanRanks;
        request.counts.assign(kPlanRanks, bytes / 4 / kPlanRanks);
        request.to = 1;
        request.chunk = plan::kChunkBytes / 4;
        for (const int rank : {0, 1, kPlanRanks - 1}) {
          const std::int64_t began = now_us();
          const plan::Choice choice = plan::select(
              request, {.layout = layout,
                        .access = hosts == 1 ? plan::Access::slots : plan::Access::messages,
                        .element_bytes = 4,
                        .costs = costs,
                        .overrides = overrides,
                        .slot_bytes = std::size_t{768} << 10});
          const plan::Plan plan = choice.algorithm->make(request, layout, rank);
          const double ms = static_cast<double>(now_us() - began) / 1e3;
          const std::string what =
              fmt::format("{} {} of {} bytes, {} hosts", choice.algorithm->name,
                          plan::to_string(request.kind), bytes, hosts);
          if (ms > result.ms) {
            result.ms = ms;
            result.slowest = what;
          }
          if (plan::bytes_of(plan) > result.bytes) {
            result.bytes = plan::bytes_of(plan);
            result.largest = what;
          }
        }
      }
    }
  }
  return result;
}

int scale(const Settings& settings) {
  struct Target {
    std::string name;
    double bound;
    double measured;
    std::string text;
  };
  std::vector<Target> wanted;
  Report report;
  constexpr std::uint64_t kForEachRank = 4;  // three pipes and the process
  (void)sys::raise_descriptor_limit(256 + kForEachRank *
                                              static_cast<std::uint64_t>(*std::max_element(
                                                  settings.sizes.begin(), settings.sizes.end())));
  for (const int ranks : settings.sizes) {
    for (const Wire wire : {Wire::local, Wire::tls}) {
      fmt::print("{} ranks, {}:\n", ranks, wire == Wire::local ? "shared memory" : "a key and TLS");
      std::fflush(stdout);
      Figures figures;
      if (!run_until_kill(ranks, wire, settings.idle, figures, report)) continue;
      if (!run_and_leave(ranks, wire, figures, report)) continue;
      print(figures);
      std::fflush(stdout);
      const bool key = wire == Wire::tls;
      const double bound = key ? kJoinSecondsWithKey : kJoinSeconds;
      wanted.push_back({fmt::format("scale_join_{}{}", ranks, key ? "_key" : ""), bound,
                        figures.join_s,
                        fmt::format("{:.2f} s of {:.0f} s", figures.join_s, bound)});
      wanted.push_back({fmt::format("scale_idle_{}{}", ranks, key ? "_key" : ""), kIdlePercent,
                        figures.idle_percent_0,
                        fmt::format("rank 0 {:.2f} % of a core, of {:.0f} %",
                                    figures.idle_percent_0, kIdlePercent)});
    }
  }
  const LargestPlan plan = largest_plan();
  fmt::print("plans of {} ranks: built in up to {:.1f} ms ({}), up to {} bytes ({})\n", kPlanRanks,
             plan.ms, plan.slowest, plan.bytes, plan.largest);
  wanted.push_back({fmt::format("scale_plan_{}_time", kPlanRanks), kPlanMilliseconds, plan.ms,
                    fmt::format("{:.1f} ms of {:.0f} ms", plan.ms, kPlanMilliseconds)});
  wanted.push_back({fmt::format("scale_plan_{}_bytes", kPlanRanks), kPlanBytes,
                    static_cast<double>(plan.bytes),
                    fmt::format("{} bytes of {:.0f}", plan.bytes, kPlanBytes)});
  if (!settings.targets) return report.faults() > 0 ? 1 : 0;
  bench::Targets targets;
  for (const Target& target : wanted) {
    targets.add(target.name, target.measured > 0 ? target.bound / target.measured : 0, 1.0,
                target.text);
  }
  return report.faults() > 0 ? 1 : targets.finish();
}

}  // namespace
}  // namespace lockstep::processes

int main(int argc, char** argv) try {
  lockstep::processes::Settings settings;
  bool no_targets = false;
  CLI::App app("Starts clusters of many processes and measures what they cost.");
  app.add_option("--sizes", settings.sizes, "how many ranks")
      ->delimiter(',')
      ->check(CLI::Range(4, 4096));
  app.add_option("--idle", settings.idle, "for how many seconds nobody does anything");
  app.add_flag("--no-targets", no_targets, "only fail if a cluster does");
  CLI11_PARSE(app, argc, argv);
  settings.targets = !no_targets;
  return lockstep::processes::scale(settings);
} catch (const std::exception& error) {
  std::fprintf(stderr, "scale: %s\n", error.what());
  return 2;
}
