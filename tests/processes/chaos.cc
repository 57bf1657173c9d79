// Chaos: kills and stops ranks of real clusters at random, and looks whether the others notice it
// as they should: in time, all alike, without a hang and with nothing left behind. After every 25
// runs one whose survivors join again and again, and keep nothing of the dead.
//
//   chaos --runs 500 --seed 1            exit code 1 if a run failed or a target was missed
//   chaos --runs 1 --seed 137 --loud     one run again, with all that the ranks said
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <thread>

#include "bench/support/paired.h"
#include "coll/control.h"
#include "tests/processes/cluster.h"
#include "tests/processes/leftovers.h"
#include "tests/processes/rejoins.h"
#include "tests/processes/scenarios.h"
#include "tests/processes/verdict.h"

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;
using Milliseconds = std::chrono::milliseconds;

constexpr auto kDead = 600ms;
constexpr auto kJoin = 2000ms;
/// A rank that is still there so long after the fault hangs.
constexpr auto kHang = 10s;

enum class Phase : std::uint8_t { join, idle, small, large, shared, end };
constexpr const char* kPhases[] = {"join", "idle", "small", "large", "shared", "end"};

const char* scenario_of(Phase phase) {
  switch (phase) {
    case Phase::join:
    case Phase::small:
      return "work 20 64";
    case Phase::idle:
      return "idle 20";
    case Phase::large:
      return "work 20 400000";
    case Phase::shared:
      return "work 20 400000 session";
    case Phase::end:
      return "work 0.05 1000";
  }
  return "";
}

/// One run's throw of the dice.
struct Draw {
  unsigned seed = 0;
  Wire wire = Wire::local;
  int ranks = 2;
  std::vector<std::string> hosts;  // of two; empty: as the wire has it
  Phase phase = Phase::small;
  sys::Signal signal = sys::Signal::kill;
  std::vector<int> victims;
  std::chrono::microseconds delay{0};  // after everybody works, or was started

  [[nodiscard]] bool is_victim(int rank) const {
    return std::find(victims.begin(), victims.end(), rank) != victims.end();
  }
  [[nodiscard]] std::string to_string() const {
    return fmt::format("seed {}: {} of rank {} of {} over {}{} in phase {} after {:.1f} ms", seed,
                       sys::to_string(signal), fmt::join(victims, " and "), ranks,
                       processes::to_string(wire), hosts.empty() ? "" : " of two hosts",
                       kPhases[static_cast<int>(phase)], static_cast<double>(delay.count()) / 1e3);
  }
};

Draw draw(unsigned seed) {
  std::mt19937 random(seed);
  const auto up_to = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  Draw draw;
  draw.seed = seed;
  draw.wire = seed % 2 == 0 ? Wire::local : Wire::tcp;
  draw.ranks = 2 + up_to(3);
  draw.phase = static_cast<Phase>(up_to(5));
  if (draw.phase == Phase::shared && draw.wire != Wire::local) draw.phase = Phase::large;
  draw.signal = up_to(4) == 0 ? sys::Signal::stop : sys::Signal::kill;
  draw.victims = {up_to(draw.ranks - 1)};
  if (draw.ranks > 3 && up_to(4) == 0) {
    draw.victims.push_back((draw.victims[0] + 1 + up_to(draw.ranks - 2)) % draw.ranks);
    std::sort(draw.victims.begin(), draw.victims.end());
  }
  draw.delay = std::chrono::microseconds(up_to(draw.phase == Phase::join ? 60'000 : 40'000));
  if (draw.wire == Wire::tcp && draw.ranks > 2 && up_to(1) == 0) {
    for (int rank = 0; rank < draw.ranks; ++rank) {
      draw.hosts.emplace_back(rank < draw.ranks / 2 ? "a" : "b");
    }
  }
  return draw;
}

struct Result {
  std::vector<std::string> faults;  // what was not as it should be
  std::optional<double> seen_ms;    // until the last survivor had thrown
  std::vector<Outcome> outcomes;
};

/// Whether a survivor's verdict is right.
std::string objection(const Draw& draw, const std::vector<Outcome>& outcomes, int rank) {
  const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
  if (!outcome.ended) return "hung";
  const auto verdict = verdict_in(outcome.text);
  if (draw.phase == Phase::end && outcome.ok()) return {};
  if (!verdict) return "did not fail, but " + outcome.how();
  if (!outcome.exited_with(3)) return "failed, but " + outcome.how();
  const auto& blamed = verdict->culprits;
  const bool only_victims =
      !blamed.empty() &&
      std::all_of(blamed.begin(), blamed.end(), [&](int r) { return draw.is_victim(r); });
  const bool joining = draw.phase == Phase::join && verdict->kind == "Timeout";
  if (verdict->kind != "PeerLost" && !joining) return "failed with " + verdict->kind;
  if (only_victims) return {};
  // Who comes when rank 0 has given up joining already finds nobody there.
  const auto zero = verdict_in(outcomes[0].text);
  const bool late = draw.phase == Phase::join && blamed == std::vector<int>{0} && zero;
  return late ? std::string() : fmt::format("blames {}", fmt::join(blamed, ", "));
}

Result run(const Draw& draw) {
  ClusterOptions options{.ranks = draw.ranks,
                         .scenario = scenario_of(draw.phase),
                         .wire = draw.wire,
                         .hosts = draw.hosts,
                         .environment = {fmt::format("TEST_DEAD_MS={}", kDead.count()),
                                         fmt::format("TEST_JOIN_MS={}", kJoin.count())}};
  Result result;
  ProcessCluster cluster(options);
  if (draw.phase != Phase::join && !cluster.wait_for_all("working", 15s)) {
    result.faults.emplace_back("did not start to work");
  }
  std::this_thread::sleep_for(draw.delay);
  const std::int64_t struck = now_us();
  for (const int victim : draw.victims) (void)cluster.process(victim).signal(draw.signal);
  const std::int64_t deadline = now_us() + std::chrono::microseconds(kHang).count();
  for (int rank = 0; rank < draw.ranks; ++rank) {
    if (draw.is_victim(rank)) continue;
    const Milliseconds left((std::max<std::int64_t>(deadline - now_us(), 0)) / 1000);
    (void)cluster.wait_for(rank, "closed after", left);
  }
  for (const int victim : draw.victims) (void)cluster.process(victim).signal(sys::Signal::kill);
  result.outcomes = cluster.finish(3s);
  std::optional<Verdict> first;
  std::int64_t last_us = 0;
  bool all_lost = true;
  for (int rank = 0; rank < draw.ranks; ++rank) {
    if (draw.is_victim(rank)) continue;
    if (const std::string why = objection(draw, result.outcomes, rank); !why.empty()) {
      result.faults.push_back(fmt::format("rank {} {}", rank, why));
    }
    const auto verdict = verdict_in(result.outcomes[static_cast<std::size_t>(rank)].text);
    all_lost = all_lost && verdict && verdict->kind == "PeerLost";
    if (!verdict || draw.phase == Phase::join) continue;
    last_us = std::max(last_us, verdict->at_us);
    // Who hears none of its peers any more is on its own.
    const auto peers = coll::control_peers(rank, draw.ranks);
    const bool cut_off =
        draw.signal == sys::Signal::stop && draw.victims.size() > 1 &&
        std::all_of(peers.begin(), peers.end(), [&](int peer) { return draw.is_victim(peer); });
    if (cut_off) continue;
    if (first && !first->same_as(*verdict) && draw.phase != Phase::end) {
      result.faults.push_back(fmt::format("rank {} gives another verdict than the others", rank));
    }
    if (!first) first = verdict;
  }
  const bool measured = draw.phase != Phase::join && draw.phase != Phase::end && all_lost;
  if (measured && draw.signal == sys::Signal::kill) {
    result.seen_ms = static_cast<double>(last_us - struck) / 1e3;
  }
  if (draw.signal == sys::Signal::kill) {
    for (const std::string& left : leftovers(cluster))
      result.faults.push_back("left behind: " + left);
  }
  return result;
}

/// One cluster whose survivors join again and again.
std::vector<std::string> rejoin(unsigned seed) {
  std::mt19937 random(seed);
  const auto up_to = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  ClusterOptions options{.ranks = 2 + up_to(3), .wire = up_to(1) == 0 ? Wire::local : Wire::tcp};
  options.environment = {fmt::format("TEST_DEAD_MS={}", kDead.count())};
  return kill_and_rejoin(options, up_to(options.ranks - 1), 5);
}

void print_ranks(const Result& result) {
  for (std::size_t rank = 0; rank < result.outcomes.size(); ++rank) {
    const Outcome& outcome = result.outcomes[rank];
    fmt::print("  rank {} {}:\n", rank, outcome.how());
    std::istringstream lines(outcome.text);
    for (std::string line; std::getline(lines, line);) fmt::print("    {}\n", line);
  }
}

/// How long a crash took to be seen, and where.
struct Seen {
  double ms;
  Draw where;
};

double percentile(const std::vector<Seen>& seen, double share) {
  std::vector<double> values;
  for (const Seen& each : seen) values.push_back(each.ms);
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto at =
      static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())) - 1);
  return values[std::min(at, values.size() - 1)];
}

void add_target(bench::Targets& targets, const char* name, std::vector<Seen> seen,
                double bound_ms) {
  std::sort(seen.begin(), seen.end(), [](const Seen& a, const Seen& b) { return a.ms > b.ms; });
  for (std::size_t i = 0; i < std::min<std::size_t>(3, seen.size()); ++i) {
    fmt::print("{:.2f} ms in {}\n", seen[i].ms, seen[i].where.to_string());
  }
  const double p99 = percentile(seen, 0.99);
  targets.add(name, seen.empty() ? 0 : bound_ms / p99, 1.0,
              fmt::format("until all survivors have thrown: median {:.2f} ms, p90 {:.2f} ms, p99 "
                          "{:.2f} ms, longest {:.2f} ms, {} kills; bound {:.0f} ms",
                          percentile(seen, 0.5), percentile(seen, 0.9), p99, percentile(seen, 1),
                          seen.size(), bound_ms));
}

struct Settings {
  int runs = 500;
  unsigned seed = 1;
  bool loud = false;
};

int chaos(const Settings& settings) {
  std::vector<Seen> one_host;
  std::vector<Seen> tcp;
  int failed = 0;
  const std::int64_t began = now_us();
  const int descriptors = open_descriptors();
  for (int i = 0; i < settings.runs; ++i) {
    const Draw chosen = draw(settings.seed + static_cast<unsigned>(i));
    Result result = run(chosen);
    if (open_descriptors() != descriptors) {
      result.faults.push_back(fmt::format("the driver has {} descriptors instead of {}",
                                          open_descriptors(), descriptors));
    }
    if (result.seen_ms)
      (chosen.wire == Wire::local ? one_host : tcp).push_back({*result.seen_ms, chosen});
    if (!result.faults.empty() || settings.loud) {
      if (!result.faults.empty()) ++failed;
      fmt::print("{}\n  {}\n", chosen.to_string(), fmt::join(result.faults, "\n  "));
      print_ranks(result);
    }
    if ((i + 1) % 25 == 0) {
      if (const auto wrong = rejoin(chosen.seed); !wrong.empty()) {
        ++failed;
        fmt::print("seed {}: survivors that join again\n  {}\n", chosen.seed,
                   fmt::join(wrong, "\n  "));
      }
      fmt::print("{} runs, {} failed, {:.0f} s\n", i + 1, failed,
                 static_cast<double>(now_us() - began) / 1e6);
    }
    std::fflush(stdout);
  }
  bench::Targets targets;
  add_target(targets, "crash_seen_one_host_p99", one_host, 50);
  add_target(targets, "crash_seen_tcp_p99", tcp, 100);
  fmt::print("{} runs from seed {}: {} failed\n", settings.runs, settings.seed, failed);
  return failed > 0 ? 1 : targets.finish();
}

}  // namespace
}  // namespace lockstep::processes

int main(int argc, char** argv) try {
  lockstep::processes::Settings settings;
  CLI::App app("Kills and stops ranks of clusters at random.");
  app.add_option("--runs", settings.runs, "how many clusters");
  app.add_option("--seed", settings.seed, "of the first; the next one has the next number");
  app.add_flag("--loud", settings.loud, "print what the ranks said of every run");
  CLI11_PARSE(app, argc, argv);
  return lockstep::processes::chaos(settings);
} catch (const std::exception& error) {
  std::fprintf(stderr, "chaos: %s\n", error.what());
  return 2;
}
