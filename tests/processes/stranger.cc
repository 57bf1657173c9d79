// Stranger: a training run over TLS while strangers throw connections at the ranks' ports. The
// result must have the same bits as without them, and steps must take hardly longer than while the
// same strangers call at a listener that is nobody's. They turn from the one to the other and back
// during the run, since the machine has moods that last for seconds: two windows of time side by
// side give one ratio.
//
//   stranger --pairs 40                  exit code 1 if the run was harmed or the target is missed
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "bench/support/paired.h"
#include "sys/posix_net.h"
#include "tests/processes/cluster.h"
#include "tests/processes/scenarios.h"
#include "tests/processes/strangers.h"
#include "tests/processes/verdict.h"
#include "transport/keys.h"

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;

constexpr int kConnections = 10'000;  // at the ranks, at least
constexpr double kPerSecond = 2500;
/// Time for the door to forget whom it had, then time that counts.
constexpr auto kTurn = 100ms;
constexpr auto kWindow = 300ms;
/// Beyond what a rank needs without strangers.
constexpr long kMostMoreKiB = 16 << 10;

/// Takes every caller and shows it out.
class Dummy {
 public:
  Dummy() : listener_(network_.listen("127.0.0.1:0")), poller_(network_.poller()) {
    poller_->watch(*listener_);
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        while (listener_->accept()) {
        }
        (void)poller_->wait(Deadline::after(100ms));
      }
    });
  }
  [[nodiscard]] std::string address() const { return listener_->address(); }

 private:
  sys::PosixNetwork network_;
  std::unique_ptr<sys::Listener> listener_;
  std::unique_ptr<sys::Poller> poller_;
  std::jthread thread_;
};

struct Settings {
  int pairs = 40;
  std::size_t count = 50'000;
};

/// The strangers' aim for a while.
struct Window {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
struct Pair {
  Window ranks;
  Window dummy;
};

struct Run {
  std::vector<std::int64_t> steps;  // when each was done
  std::string digest;
  int thrown = 0;     // at the ranks
  long peak_kib = 0;  // of the rank that took most memory
  std::vector<Pair> pairs;
};

long peak_memory_kib(int pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (const auto kib = number_after(line, "VmHWM:")) return static_cast<long>(*kib);
  }
  return 0;
}

/// How rank 1 introduces itself to rank 0 for data.
std::string data_identity() {
  return transport::Pair{
      .job = "lockstep", .generation = 1, .client = 1, .server = 0, .plane = transport::Plane::data}
      .identity();
}

/// What the ranks did, from their own words.
void read_outcomes(ProcessCluster& cluster, Run& run) {
  for (const Outcome& outcome : cluster.finish(20s)) {
    if (!outcome.ok()) throw std::runtime_error(outcome.how() + ":\n" + outcome.text);
    const std::string digest = outcome.text.substr(outcome.text.find("digest ") + 7, 16);
    if (!run.digest.empty() && digest != run.digest) {
      throw std::runtime_error("the ranks differ: " + digest + " and " + run.digest);
    }
    run.digest = digest;
    const std::size_t steps = outcome.text.find("steps ");
    if (steps == std::string::npos) continue;
    std::istringstream line(outcome.text.substr(steps + 6, outcome.text.find('\n', steps) - steps));
    for (std::int64_t at = 0; line >> at;) run.steps.push_back(at);
  }
}

class Training {
 public:
  Training(int steps, std::size_t count)
      : cluster_(
            {.ranks = 2, .scenario = fmt::format("train {} {}", steps, count), .wire = Wire::tls}) {
    if (!cluster_.wait_for_all("working", 20s)) throw std::runtime_error(cluster_.text(0));
  }

  /// True while it trains, after so long.
  bool goes_on(std::chrono::milliseconds time) {
    if (cluster_.wait_for(0, "digest", time)) return false;
    for (const int rank : {0, 1}) {
      run_.peak_kib = std::max(run_.peak_kib, peak_memory_kib(cluster_.process(rank).pid()));
      if (cluster_.process(rank).poll()) return false;
    }
    return true;
  }
  void let_strangers_in(const Dummy& dummy) {
    const std::string identity = data_identity();
    Strangers strangers({.targets = {dummy.address()},
                         .per_second = kPerSecond,
                         .recorded = record_greeting(kTestKey, identity),
                         .identity = identity});
    const auto window = [&](const std::vector<std::string>& targets, Window& into) {
      strangers.aim(targets);
      if (!goes_on(kTurn)) return false;
      into.begin = now_us();
      const bool whole = goes_on(kWindow);
      into.end = now_us();
      return whole;
    };
    for (bool more = true; more;) {
      Pair pair;
      const bool ranks_first = run_.pairs.size() % 2 == 0;
      if (!ranks_first) more = window({dummy.address()}, pair.dummy);
      const int before = strangers.thrown();
      more = more && window(cluster_.addresses(), pair.ranks);
      run_.thrown += strangers.thrown() - before;
      if (ranks_first) more = more && window({dummy.address()}, pair.dummy);
      if (more) run_.pairs.push_back(pair);
    }
    strangers.stop();
  }
  Run finish() {
    while (goes_on(500ms)) continue;
    read_outcomes(cluster_, run_);
    return std::move(run_);
  }

 private:
  ProcessCluster cluster_;
  Run run_;
};

/// Steps that were done in a window, each second.
double rate(const std::vector<std::int64_t>& steps, const Window& window) {
  const auto first = std::lower_bound(steps.begin(), steps.end(), window.begin);
  const auto last = std::lower_bound(steps.begin(), steps.end(), window.end);
  if (last - first < 2) return 0;
  return static_cast<double>(last - first - 1) / static_cast<double>(*(last - 1) - *first);
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(
      std::lround(share * static_cast<double>(values.size() - 1)))];
}

int stranger(const Settings& settings) {
  const Dummy dummy;
  bool harmed = false;
  constexpr int kProbe = 500;
  const Run probe = Training(kProbe, settings.count).finish();
  const double seconds = std::chrono::duration<double>(2 * (kTurn + kWindow)).count();
  const double step = static_cast<double>(probe.steps.back() - probe.steps.front()) / 1e6 / kProbe;
  const int steps = static_cast<int>(seconds * settings.pairs / step);
  const Run alone = Training(steps, settings.count).finish();
  fmt::print("{} steps of {} floats without strangers: {:.1f} s, digest {}, {} MiB\n", steps,
             settings.count, static_cast<double>(alone.steps.back() - alone.steps.front()) / 1e6,
             alone.digest, alone.peak_kib >> 10);
  Training training(steps, settings.count);
  training.let_strangers_in(dummy);
  const Run run = training.finish();
  fmt::print("{} strangers at the ranks, digest {}\n", run.thrown, run.digest);
  if (run.digest != alone.digest) {
    fmt::print("these are other bits\n");
    harmed = true;
  }
  if (run.thrown < kConnections) {
    fmt::print("these are too few: {} are wanted; give more pairs\n", kConnections);
    harmed = true;
  }
  const long more = run.peak_kib - alone.peak_kib;
  fmt::print("memory of a rank: {} KiB more than without strangers, {} are allowed\n", more,
             kMostMoreKiB);
  harmed = harmed || more > kMostMoreKiB;
  std::vector<double> slowdowns;
  for (const Pair& pair : run.pairs) {
    const double ours = rate(run.steps, pair.ranks);
    const double other = rate(run.steps, pair.dummy);
    if (ours > 0 && other > 0) slowdowns.push_back(other / ours - 1);
  }
  bench::Targets targets;
  const bool enough = slowdowns.size() >= static_cast<std::size_t>(bench::Targets::kMinPairs);
  const double slowdown = enough ? quantile(slowdowns, 0.5) : 1;
  targets.add("stranger_slowdown", 0.03 / std::max(slowdown, 0.001), 1.0,
              fmt::format("slowdown {:.1f} %, quartiles {:.1f} to {:.1f} %, {} pairs, bound 3 %",
                          100 * slowdown, enough ? 100 * quantile(slowdowns, 0.25) : 0,
                          enough ? 100 * quantile(slowdowns, 0.75) : 0, slowdowns.size()));
  return harmed ? 1 : targets.finish();
}

}  // namespace
}  // namespace lockstep::processes

int main(int argc, char** argv) try {
  lockstep::processes::Settings settings;
  CLI::App app("Strangers at the ports of a training run.");
  app.add_option("--pairs", settings.pairs, "windows with strangers, and as many beside them");
  app.add_option("--count", settings.count, "floats reduced in a step");
  CLI11_PARSE(app, argc, argv);
  return lockstep::processes::stranger(settings);
} catch (const std::exception& error) {
  std::fprintf(stderr, "the run was harmed: %s\n", error.what());
  return 1;
}
