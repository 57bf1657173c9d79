#include "tests/sim_cluster/large_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/gate.h"
#include "sim/network.h"
#include "sim/scheduler.h"
#include "sim/world.h"
#include "tests/sim_cluster/job_process.h"

namespace lockstep::simulated {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

constexpr Duration kLongest = seconds(120);  // of a phase, virtual
constexpr std::size_t kSmall = 128;          // elements of eight bytes
constexpr std::size_t kLarge = 8192;

class LargeJob {
 public:
  explicit LargeJob(const JobSpec& spec)
      : spec_(spec),
        ranks_(spec.ranks),
        world_(1),
        network_(world_, {.delay = microseconds(50), .jitter = microseconds(20)}),
        scheduler_(world_) {
    for (int rank = 0; rank < ranks_; ++rank) {
      auto& member = *members_.emplace_back(std::make_unique<Member>());
      member.rank = rank;
      sys::Network& network = network_.at(spec_.process(rank));
      if (rank == 0) counted_ = std::make_unique<CountedNetwork>(network, rank0_);
      member.network = rank == 0 ? counted_.get() : &network;
    }
  }
  ~LargeJob() {
    if (scheduler_.running() == 0) return;
    for (auto& member : members_) (void)member.release();  // threads that hang use them
  }
  LargeJob(const LargeJob&) = delete;
  LargeJob& operator=(const LargeJob&) = delete;

  LargeJobReport run() {
    const int victim = ranks_ / 2;
    phase("join", [this](Member& member) { join(member); });
    phase("all_reduce of 1 KiB", [this](Member& member) { reduce(member, kSmall); });
    phase("again", [this](Member& member) { reduce(member, kSmall); });
    phase("all_reduce of 64 KiB", [this](Member& member) { reduce(member, kLarge); });
    phase("barrier", [](Member& member) { member.session->barrier(); });
    idle();
    leave();
    phase("join again", [this](Member& member) { join(member); });
    phase("all_reduce of 1 KiB", [this](Member& member) { reduce(member, kSmall); });
    phase("lose a rank", [this, victim](Member& member) { lose(member, victim); });
    leave();
    return std::move(report_);
  }

 private:
  struct Member {
    int rank = 0;
    sys::Network* network = nullptr;
    std::atomic<std::uint64_t> generation = 0;
    std::optional<coll::Session> session;
    std::string problem;
  };

  void join(Member& member) {
    const coll::JoinOptions options = spec_.options(member.rank);
    member.session = coll::session_of(
        coll::Joiner(options, job_process(*member.network, member.rank, member.generation)).run(),
        options);
  }

  void reduce(Member& member, std::size_t count) const {
    std::vector<std::int64_t> values(count, member.rank);
    member.session->all_reduce(Op::sum, std::span(values));
    const std::int64_t sum = std::int64_t{ranks_} * (ranks_ - 1) / 2;
    if (std::any_of(values.begin(), values.end(), [&](auto value) { return value != sum; })) {
      member.problem = "a wrong sum";
    }
  }

  void lose(Member& member, int victim) {
    if (member.rank == victim) network_.kill(spec_.process(victim));
    try {
      member.session->barrier();
      if (member.rank != victim) member.problem = "a barrier without a dead rank";
    } catch (const Error& error) {
      if (member.rank != victim && error.culprits() != std::vector{victim}) {
        member.problem = error.what();
      }
    }
  }

  /// Runs it on the main threads of all processes.
  template <class Body>
  void phase(const char* name, Body body) {
    measure(name, [&] {
      std::size_t over = 0;
      for (auto& each : members_) {
        scheduler_.spawn(spec_.process(each->rank), "main", [&body, &over, member = each.get()] {
          try {
            body(*member);
          } catch (const std::exception& error) {
            member->problem = error.what();
          }
          ++over;
        });
      }
      return scheduler_.run_until([&] { return over == members_.size(); },
                                  Deadline::after(world_.now(), kLongest));
    });
  }

  void idle() {
    measure("idle for 2 s", [this] {
      scheduler_.run_until([] { return false; }, Deadline::after(world_.now(), seconds(2)));
      return true;
    });
  }

  /// Until all threads of the processes are over.
  void leave() {
    measure("leave", [this] {
      for (auto& each : members_) {
        scheduler_.spawn(spec_.process(each->rank), "main",
                         [member = each.get()] { member->session.reset(); });
      }
      return scheduler_.run_until([this] { return scheduler_.running() == 0; },
                                  Deadline::after(world_.now(), kLongest));
    });
  }

  template <class Part>
  void measure(const char* name, Part part) {
    if (!report_.problem.empty()) return;
    const Time began = world_.now();
    const Traffic before = rank0_;
    const auto real = std::chrono::steady_clock::now();
    if (!part())
      report_.problem = fmt::format("{}: not over after {} s", name, kLongest / seconds(1));
    report_.phases.push_back(
        {.name = name,
         .took = world_.now() - began,
         .real_seconds =
             std::chrono::duration<double>(std::chrono::steady_clock::now() - real).count(),
         .rank0 = rank0_ - before});
    for (const auto& member : members_) {
      if (!report_.problem.empty() || member->problem.empty()) continue;
      report_.problem = fmt::format("{}: rank {}: {}", name, member->rank, member->problem);
    }
  }

  JobSpec spec_;
  int ranks_;
  sim::World world_;
  sim::Network network_;
  sim::Scheduler scheduler_;
  Traffic rank0_;
  std::unique_ptr<CountedNetwork> counted_;
  std::vector<std::unique_ptr<Member>> members_;
  LargeJobReport report_;
};

}  // namespace

LargeJobReport large_job(const JobSpec& spec) { return LargeJob(spec).run(); }

int run_large_job(int ranks) {
  const LargeJobReport report = large_job({.ranks = ranks});
  fmt::print("{} ranks; frames, bytes and connections are those of rank 0\n", ranks);
  fmt::print("{:<22}{:>12}{:>12}{:>12}{:>14}{:>14}{:>13}{:>10}\n", "", "virtual s", "frames out",
             "frames in", "bytes out", "bytes in", "connections", "real s");
  for (const JobPhase& phase : report.phases) {
    fmt::print("{:<22}{:>12.3f}{:>12}{:>12}{:>14}{:>14}{:>13}{:>10.1f}\n", phase.name,
               std::chrono::duration<double>(phase.took).count(), phase.rank0.frames_out,
               phase.rank0.frames_in, phase.rank0.bytes_out, phase.rank0.bytes_in,
               phase.rank0.connections, phase.real_seconds);
  }
  if (!report.problem.empty()) fmt::print("{}\n", report.problem);
  return report.problem.empty() ? 0 : 1;
}

}  // namespace lockstep::simulated
