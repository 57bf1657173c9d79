// Stranger: a training run over TLS while strangers throw connections at the ranks' ports. The
// result must have the same bits as without them, and take hardly longer than with the same
// strangers calling at a listener that is nobody's.
//
//   stranger --pairs 15                  exit code 1 if the run was harmed or the target is missed
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "base/thread.h"
#include "bench/support/paired.h"
#include "sys/posix_net.h"
#include "tests/processes/cluster.h"
#include "tests/processes/scenarios.h"
#include "tests/processes/strangers.h"
#include "tests/processes/verdict.h"
#include "transport/keys.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;

constexpr int kConnections = 10'000;
constexpr double kSecondsOfTraining = 4;
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

enum class Aim : std::uint8_t { nobody, ranks, dummy };

struct Run {
  double seconds = 0;
  std::string digest;
  int thrown = 0;
  long peak_kib = 0;  // of the rank that took most memory
};

struct Settings {
  int pairs = 15;
  std::size_t count = 50'000;
  int steps = 0;  // 0: as many as take kSecondsOfTraining
};

long peak_memory_kib(int pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (const auto kib = number_after(line, "VmHWM:")) return static_cast<long>(*kib);
  }
  return 0;
}

/// How rank 1 of this cluster introduces itself to rank 0 for data.
std::string identity_in(const ProcessCluster& cluster) {
  const std::string text = fmt::format("2|{},{}", cluster.addresses()[0], cluster.addresses()[1]);
  return transport::Pair{.job = fmt::format("{:016x}", XXH3_64bits(text.data(), text.size())),
                         .generation = 1,
                         .client = 1,
                         .server = 0,
                         .plane = transport::Plane::data}
      .identity();
}

Run train(const Settings& settings, Aim aim, const Dummy& dummy) {
  ProcessCluster cluster({.ranks = 2,
                          .scenario = fmt::format("train {} {}", settings.steps, settings.count),
                          .wire = Wire::tls});
  if (!cluster.wait_for_all("working", 20s)) throw std::runtime_error(cluster.text(0));
  std::unique_ptr<Strangers> strangers;
  if (aim != Aim::nobody) {
    const std::string identity = identity_in(cluster);
    strangers = std::make_unique<Strangers>(StrangersOptions{
        .targets = aim == Aim::ranks ? cluster.addresses() : std::vector{dummy.address()},
        .per_second = kConnections / kSecondsOfTraining,
        .recorded = record_greeting(kTestKey, identity),
        .identity = identity});
  }
  Run run;
  for (int turn = 0; turn < 600 && !cluster.wait_for(0, "digest", 200ms); ++turn) {
    for (const int rank : {0, 1}) {
      run.peak_kib = std::max(run.peak_kib, peak_memory_kib(cluster.process(rank).pid()));
    }
  }
  if (strangers) run.thrown = strangers->stop();
  const auto outcomes = cluster.finish(20s);
  for (const Outcome& outcome : outcomes) {
    if (!outcome.ok()) throw std::runtime_error(outcome.how() + ":\n" + outcome.text);
    const std::size_t at = outcome.text.find("digest ");
    const std::string digest = outcome.text.substr(at + 7, 16);
    if (!run.digest.empty() && digest != run.digest) {
      throw std::runtime_error("the ranks differ: " + digest + " and " + run.digest);
    }
    run.digest = digest;
    run.seconds = std::max(
        run.seconds, static_cast<double>(number_after(outcome.text, "micros ").value_or(0)) / 1e6);
  }
  return run;
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

int stranger(Settings settings) {
  const Dummy dummy;
  bool harmed = false;
  if (settings.steps == 0) {
    settings.steps = 200;
    settings.steps = static_cast<int>(settings.steps * kSecondsOfTraining /
                                      train(settings, Aim::nobody, dummy).seconds) +
                     1;
  }
  const Run alone = train(settings, Aim::nobody, dummy);
  fmt::print("{} steps of {} floats without strangers: {:.2f} s, digest {}, {} MiB\n",
             settings.steps, settings.count, alone.seconds, alone.digest, alone.peak_kib >> 10);
  std::vector<double> ratios;
  long peak = alone.peak_kib;
  for (int pair = 0; pair < settings.pairs; ++pair) {
    Run ours;
    Run other;
    if (pair % 2 == 0) ours = train(settings, Aim::ranks, dummy);
    other = train(settings, Aim::dummy, dummy);
    if (pair % 2 != 0) ours = train(settings, Aim::ranks, dummy);
    ratios.push_back(ours.seconds / other.seconds);
    peak = std::max(peak, ours.peak_kib);
    fmt::print("{:.3f}: {:.2f} s with {} strangers at the ranks, {:.2f} s with {} at a dummy\n",
               ratios.back(), ours.seconds, ours.thrown, other.seconds, other.thrown);
    std::fflush(stdout);
    if (ours.digest != alone.digest || other.digest != alone.digest) {
      fmt::print("other bits: {} and {}\n", ours.digest, other.digest);
      harmed = true;
    }
  }
  const long more = peak - alone.peak_kib;
  fmt::print("memory of a rank: at most {} KiB more than without strangers\n", more);
  if (more > kMostMoreKiB) {
    fmt::print("that is too much: {} KiB are allowed\n", kMostMoreKiB);
    harmed = true;
  }
  const double slowdown = quantile(ratios, 0.5) - 1;
  bench::Targets targets;
  const bool enough = settings.pairs >= bench::Targets::kMinPairs;
  targets.add("stranger_slowdown", enough ? 0.03 / std::max(slowdown, 0.001) : 0, 1.0,
              fmt::format("slowdown {:.1f} %, quartiles {:.1f} to {:.1f} %, {} pairs, bound 3 %",
                          100 * slowdown, 100 * (quantile(ratios, 0.25) - 1),
                          100 * (quantile(ratios, 0.75) - 1), settings.pairs));
  return harmed ? 1 : targets.finish();
}

}  // namespace
}  // namespace lockstep::processes

int main(int argc, char** argv) {
  lockstep::processes::Settings settings;
  CLI::App app("Strangers at the ports of a training run.");
  app.add_option("--pairs", settings.pairs, "runs with strangers, and as many beside them");
  app.add_option("--count", settings.count, "floats reduced in a step");
  app.add_option("--steps", settings.steps, "of training; 0: four seconds");
  CLI11_PARSE(app, argc, argv);
  try {
    return lockstep::processes::stranger(settings);
  } catch (const std::exception& error) {
    fmt::print("the run was harmed: {}\n", error.what());
    return 1;
  }
}
