// lockstep plans: proves every algorithm's plans over many layouts and sizes, and says so.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "commands.h"
#include "names.h"
#include "plan/sweep.h"

namespace lockstep::tool {
namespace {

using Clock = std::chrono::steady_clock;

/// Says how far the sweep is: one line that changes on a terminal, a line now and then elsewhere.
/// Any thread.
class Progress {
 public:
  explicit Progress(std::size_t algorithms) : algorithms_(algorithms) {}

  void show(const plan::SweepRow& row) {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (now - last_ < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(10))) {
      return;
    }
    last_ = now;
    fmt::print(stderr, "{}{} of {} proven, at {} {}: {} cases, {} failures{}",
               terminal_ ? "\r\033[K" : "", finished_, algorithms_,
               plan::to_string(row.algorithm->kind), row.algorithm->name, row.cases, row.failures,
               terminal_ ? "" : "\n");
    std::fflush(stderr);
  }

  /// Before a result is printed.
  void finished() {
    const std::lock_guard lock(mutex_);
    ++finished_;
    if (terminal_) fmt::print(stderr, "\r\033[K");
  }

 private:
  std::mutex mutex_;
  bool terminal_ = isatty(STDERR_FILENO) == 1;
  std::size_t algorithms_;
  std::size_t finished_ = 0;
  Clock::time_point last_ = Clock::now();
};

/// Sweeps the algorithms on all cores; rows come in their order, each as soon as it is there.
class Sweeps {
 public:
  Sweeps(std::span<const plan::Algorithm> list, const plan::SweepOptions& options)
      : rows_(list.size()) {
    const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
    for (unsigned i = 0; i < cores; ++i) {
      workers_.emplace_back([this, list, options] {
        for (std::size_t at; (at = next_.fetch_add(1)) < list.size();) {
          rows_[at].set_value(plan::sweep(list[at], options));
        }
      });
    }
  }
  plan::SweepRow row(std::size_t at) { return rows_[at].get_future().get(); }

 private:
  std::vector<std::promise<plan::SweepRow>> rows_;
  std::atomic<std::size_t> next_ = 0;
  std::vector<std::jthread> workers_;
};

struct Options {
  bool brief = false;
  std::string kind;
};

std::span<const plan::Algorithm> chosen(const Options& options) {
  return options.kind.empty() ? plan::algorithms() : plan::algorithms(parse_kind(options.kind));
}

int run(const Options& options) {
  const std::span<const plan::Algorithm> list = chosen(options);
  Progress progress(list.size());
  const plan::SweepOptions sweep_options{
      .extent = options.brief ? plan::Extent::brief : plan::Extent::complete,
      .progress = [&](const plan::SweepRow& row) { progress.show(row); }};
  fmt::print("{:<15} {:<15} {:<9} {:<11} {:<11} {:>8} {:>8} {:>8}  {}\n", "collective", "algorithm",
             "access", "order", "proven", "cases", "refused", "failures", "ranks");
  std::uint64_t cases = 0;
  std::uint64_t failures = 0;
  Sweeps sweeps(list, sweep_options);
  for (std::size_t at = 0; at < list.size(); ++at) {
    const plan::Algorithm& algorithm = list[at];
    const plan::SweepRow row = sweeps.row(at);
    // An order that is not the promised one is a failure even if every value is right.
    const std::uint64_t failed = row.right() ? 0 : std::max<std::uint64_t>(row.failures, 1);
    progress.finished();
    fmt::print("{:<15} {:<15} {:<9} {:<11} {:<11} {:>8} {:>8} {:>8}  {}\n",
               plan::to_string(algorithm.kind), algorithm.name, to_string(algorithm.access),
               to_string(algorithm.order), to_string(row.proven), row.cases, row.refused, failed,
               row.ranks);
    if (failed > 0) fmt::print("  first failure: {}\n", row.first_failure);
    std::fflush(stdout);
    cases += row.cases;
    failures += failed;
  }
  fmt::print(
      "sizes of n ranks: {} elements, whole and in chunks of {}; every root; replicas and hosts "
      "alike and not\n{} cases, {} failures\n",
      options.brief ? "0, 1, n + 1 and 11 n + 5"
                    : "0, 1, n - 1, n, n + 1, 3 n + 2, 11 n + 5 and 37 n + 9",
      options.brief ? "3" : "1, 3 and 7", cases, failures);
  return failures > 0 ? 1 : 0;
}

}  // namespace

Command add_plans(CLI::App& application) {
  const auto options = std::make_shared<Options>();
  CLI::App* parser =
      application.add_subcommand("plans", "Prove the plans of every algorithm correct");
  parser->add_option("collective", options->kind, "Only this one of " + kind_names())
      ->type_name("");
  parser->add_flag("--brief", options->brief, "Fewer ranks and sizes: seconds instead of minutes");
  parser->footer(
      "Each case runs the plans of all ranks against each other, symbolically, and proves: every\n"
      "send has its receive, no deadlock, no race, the right result, and the order of additions.\n"
      "Sizes are 0, 1, n - 1, n, n + 1 elements for n ranks, and more, in chunks that do not\n"
      "divide them; with all roots, ragged counts, several replicas a rank, in place and not.\n"
      "Exit code 1 if a proof fails.\n"
      "Examples:\n"
      "  lockstep plans\n"
      "  lockstep plans all_reduce --brief");
  return {parser, [options] { return run(*options); }};
}

}  // namespace lockstep::tool
