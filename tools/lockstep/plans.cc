// lockstep plans: proves every algorithm's plans over many layouts and sizes, and says so.
#include <fmt/format.h>
#include <fmt/ranges.h>
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

constexpr const char* kRow =
    "{:<15} {:<15} {:<9} {:<11} {:<11} {:>8} {:>8} {:>8} {:>8}  {:<21} {:<21} {}\n";

void print_heading() {
  fmt::print(fmt::runtime(kRow), "collective", "algorithm", "access", "order", "proven", "cases",
             "alike", "refused", "failures", "ranks", "hosts", "replicas");
}

void print_row(const plan::SweepRow& row, std::uint64_t failed) {
  const plan::Algorithm& algorithm = *row.algorithm;
  fmt::print(fmt::runtime(kRow), plan::to_string(algorithm.kind), algorithm.name,
             to_string(algorithm.access), to_string(algorithm.order), to_string(row.proven),
             row.cases, row.alike, row.refused, failed, plan::text_of(row.ran.ranks()),
             plan::text_of(row.ran.hosts()), plan::text_of(row.ran.replicas()));
  if (failed > 0) fmt::print("  first failure: {}\n", row.first_failure);
  std::fflush(stdout);
}

/// Sizes and roots of the cases that ran; algorithms with the same ones together.
void print_requests(const std::vector<plan::SweepRow>& rows) {
  using Lines = std::vector<plan::Coverage::Line>;
  std::vector<std::pair<Lines, std::vector<std::string>>> groups;
  for (const plan::SweepRow& row : rows) {
    const Lines lines = row.ran.requests();
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& known) { return known.first == lines; });
    if (group == groups.end()) group = groups.insert(groups.end(), {lines, {}});
    group->second.push_back(
        fmt::format("{} {}", plan::to_string(row.algorithm->kind), row.algorithm->name));
  }
  fmt::print("\nElements for n ranks (\"by 3\": in chunks of 3), and roots:\n");
  for (const auto& [lines, algorithms] : groups) {
    fmt::print("{}\n", fmt::join(algorithms, ", "));
    for (const auto& [ranks, text] : lines) fmt::print("  {:<21} {}\n", ranks, text);
  }
}

int run(const Options& options) {
  const std::span<const plan::Algorithm> list = chosen(options);
  Progress progress(list.size());
  const plan::SweepOptions sweep_options{
      .extent = options.brief ? plan::Extent::brief : plan::Extent::complete,
      .progress = [&](const plan::SweepRow& row) { progress.show(row); }};
  print_heading();
  std::vector<plan::SweepRow> rows;
  std::uint64_t cases = 0;
  std::uint64_t failures = 0;
  Sweeps sweeps(list, sweep_options);
  for (std::size_t at = 0; at < list.size(); ++at) {
    const plan::SweepRow& row = rows.emplace_back(sweeps.row(at));
    // An order that is not the promised one is a failure even if every value is right.
    const std::uint64_t failed = row.right() ? 0 : std::max<std::uint64_t>(row.failures, 1);
    progress.finished();
    print_row(row, failed);
    cases += row.cases;
    failures += failed;
  }
  print_requests(rows);
  fmt::print(
      "\nAlike are layouts that were not run: their plans are those of the same ranks on one "
      "host,\n"
      "or, where replicas do not matter, of one replica a rank; compared with one request each.\n"
      "{} cases, {} failures\n",
      cases, failures);
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
      "Ranks are from 1 to 64, on one host, on several and each on its own, with 1, 2, 3, 5 and\n"
      "uneven replicas; sizes empty, ragged and in chunks that do not divide them; in place and\n"
      "not. The last lines say which sizes and roots ran; \"refused\" is what cannot be asked "
      "for.\n"
      "Exit code 1 if a proof fails.\n"
      "Examples:\n"
      "  lockstep plans\n"
      "  lockstep plans all_reduce --brief");
  return {parser, [options] { return run(*options); }};
}

}  // namespace lockstep::tool
