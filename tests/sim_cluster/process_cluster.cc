#include "tests/sim_cluster/process_cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/gate.h"
#include "coll/control.h"
#include "coll/joiner.h"
#include "sim/network.h"
#include "sim/scheduler.h"
#include "sim/world.h"
#include "tests/sim_cluster/job_process.h"

namespace lockstep::simulated {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Virtual. Within this time of the last strike every rank has ended that is not busy by itself: the
/// time until a silent rank is given up, and of every wait that comes on top.
constexpr Duration kBound = seconds(30);
/// For the last words after all have ended.
constexpr Duration kThreadsEnd = seconds(15);

class ProcessCluster {
 public:
  ProcessCluster(const ProcessSchedule& schedule, Trace trace)
      : schedule_(schedule),
        spec_{.ranks = schedule.program.ranks, .key = schedule.has_key ? Key::given : Key::none},
        trace_(trace),
        world_(schedule.seed ^ 0x5EED),
        network_(world_, schedule.links),
        scheduler_(world_) {
    const int ranks = schedule.program.ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      auto& member = *members_.emplace_back(std::make_unique<Member>(schedule.program, rank));
      scheduler_.spawn(spec_.process(rank), "main", [this, &member] { live(member); });
    }
  }
  ~ProcessCluster() {
    // Threads that hang are dropped, and what they use has to stay.
    if (scheduler_.running() == 0) return;
    for (auto& member : members_) (void)member.release();
  }
  ProcessCluster(const ProcessCluster&) = delete;
  ProcessCluster& operator=(const ProcessCluster&) = delete;

  Outcome run() {
    const auto all_ended = [this] { return ended_ == members_.size(); };
    const Duration longest = seconds(10) + schedule_.program.computes() + kBound;
    Deadline deadline = Deadline::after(Time{}, longest);
    if (!schedule_.strikes.empty()) {
      scheduler_.run_until([&] { return steps_ >= schedule_.after_steps || all_ended(); },
                           deadline);
      for (std::size_t i = 0; i < schedule_.strikes.size() && !all_ended(); ++i) {
        if (i > 0) scheduler_.run_until(all_ended, Deadline::after(world_.now(), schedule_.gap));
        if (!all_ended()) strike(schedule_.strikes[i]);
      }
    }
    scheduler_.run_until(all_ended, Deadline::after(world_.now(), longest));
    Outcome outcome;
    outcome.struck = !struck_.empty();
    outcome.problem = hang();
    outcome.hung = !outcome.problem.empty();
    outcome.known = outcome.hung && is_known_hang();
    if (outcome.known) outcome.problem.clear();
    if (outcome.hung) {  // its connections end now
      for (const auto& member : members_) {
        network_.kill(spec_.process(member->rank));
        unwind(*member);
      }
      scheduler_.run_until(all_ended, Deadline::after(world_.now(), kThreadsEnd));
    }
    for (const auto& each : members_) {
      Member* const member = each.get();
      if (!member->ended) continue;
      scheduler_.spawn(spec_.process(member->rank), "exit",
                       [member] { member->participant.close(); });
    }
    scheduler_.run_until([&] { return scheduler_.running() == 0; },
                         Deadline::after(world_.now(), kThreadsEnd));
    if (scheduler_.running() > 0 && outcome.problem.empty()) {
      outcome.hung = true;
      outcome.problem = "threads that do not end: " + scheduler_.describe_running();
    }
    outcome.simulated = world_.now() - Time{};
    if (outcome.problem.empty() && !outcome.known) outcome.problem = judge(outcome);
    return outcome;
  }

 private:
  struct Member {
    Member(const Program& program, int its_rank) : rank(its_rank), participant(program, its_rank) {}
    int rank;
    std::atomic<std::uint64_t> generation = 0;
    Participant participant;
    std::optional<Time> joined;
    std::optional<Time> ended;
    Status failure;
    std::string problem;
  };

  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    if (trace_ == Trace::off) return;
    fmt::print("{:>12.3f} ms  {}\n",
               std::chrono::duration<double, std::milli>(world_.now() - Time{}).count(),
               fmt::format(format, std::forward<Args>(args)...));
  }

  /// All of a process, on its main thread.
  void live(Member& member) {
    try {
      const Duration start = schedule_.starts[static_cast<std::size_t>(member.rank)];
      Gate().wait([] { return false; }, Deadline::after(world_.now(), start));
      const coll::JoinOptions options = spec_.options(member.rank);
      coll::Session session = coll::session_of(
          coll::Joiner(options, job_process(network_.at(spec_.process(member.rank)), member.rank,
                                            member.generation))
              .run(),
          options);
      member.joined = world_.now();
      say("rank {} has joined", member.rank);
      member.participant.run(std::move(session), [&] {
        ++steps_;
        say("rank {} has done {} steps", member.rank, member.participant.steps());
      });
      say("rank {} has finished", member.rank);
    } catch (const Error&) {
      member.failure = Status::from_current_exception();
      say("rank {} failed at {}: {}", member.rank, member.participant.at(), quote(member.failure));
      member.participant.call_again(member.failure);
    } catch (...) {
      member.problem = Status::from_current_exception().message();
    }
    if (!member.participant.keeps_sessions()) member.participant.close();
    member.ended = world_.now();
    ++ended_;
  }

  void strike(const Strike& strike) {
    Member& member = *members_[static_cast<std::size_t>(strike.rank)];
    say("{}", describe(strike));
    struck_.push_back(strike);
    last_strike_ = world_.now();
    const std::string process = spec_.process(strike.rank);
    const std::string other = spec_.process(strike.other);
    switch (strike.damage) {
      case Damage::stop_briefly:
      case Damage::stop:
        scheduler_.pause(process, world_.now() + strike.lasts);
        break;
      case Damage::kill:
        network_.kill(process);
        unwind(member);
        break;
      case Damage::isolate:
        network_.silence_all(process);
        break;
      case Damage::cut:
        network_.cut(process, other);
        break;
      case Damage::half_close:
        network_.half_close({.from = process, .to = other});
        break;
      case Damage::lose_both:
        network_.silence({.from = other, .to = process});
        [[fallthrough]];
      case Damage::lose:
        network_.silence({.from = process, .to = other});
        break;
      case Damage::abort:
        unwind(member);
        break;
      case Damage::desert:
        member.participant.desert();
        break;
    }
  }

  /// Its operations end. Of a process that is killed nobody hears that.
  void unwind(Member& member) {
    scheduler_.spawn(spec_.process(member.rank), "user",
                     [&member] { member.participant.abort("it was told to"); });
  }

  static std::string quote(const Status& cause) {
    return fmt::format("{} {} \"{}\"", to_string(cause.kind()), cause.culprits(), cause.message());
  }

  std::string hang() const {
    std::string text;
    for (const auto& member : members_) {
      if (member->ended) continue;
      text += fmt::format("{} rank {} at {}", text.empty() ? "hang:" : ";", member->rank,
                          member->joined ? member->participant.at() : "joining");
    }
    return text;
  }

  [[nodiscard]] bool is_known_hang() const {
    Hang hang;
    for (const Strike& strike : struck_) {
      if (!is_silent(strike.damage)) continue;
      hang.in_silence = true;
      hang.of_a_pair = hang.of_a_pair || is_of_a_pair(strike.damage);
    }
    hang.some_left = std::any_of(members_.begin(), members_.end(),
                                 [](const auto& member) { return member->participant.finished(); });
    hang.several_groups = schedule_.program.has_several_groups();
    return known_hang(hang);
  }

  /// Not expected to know anything of the others, nor they of it.
  [[nodiscard]] bool is_out(int rank) const {
    return std::any_of(struck_.begin(), struck_.end(), [&](const Strike& strike) {
      return strike.rank == rank &&
             (is_of_a_process(strike.damage) || strike.damage == Damage::desert);
    });
  }

  [[nodiscard]] bool has_joined(int rank) const {
    return members_[static_cast<std::size_t>(rank)]->joined.has_value();
  }
  [[nodiscard]] bool has_struck_pair() const {
    return std::any_of(struck_.begin(), struck_.end(),
                       [](const Strike& strike) { return is_of_a_pair(strike.damage); });
  }
  [[nodiscard]] bool has_paused(int rank) const {
    return std::any_of(struck_.begin(), struck_.end(), [&](const Strike& strike) {
      return strike.rank == rank && strike.damage == Damage::stop_briefly;
    });
  }

  [[nodiscard]] std::set<int> blamable() const {
    std::set<int> ranks;
    for (const Strike& strike : struck_) {
      if (strike.damage == Damage::stop_briefly) continue;
      ranks.insert(strike.rank);
      if (is_of_a_pair(strike.damage)) ranks.insert(strike.other);
    }
    // A rank that is still joining has not begun to send pulses.
    for (const auto& member : members_) {
      if (!ranks.empty() && !member->joined) ranks.insert(member->rank);
    }
    return ranks;
  }

  /// Which ranks are still connected by control connections that nothing has struck: equal numbers.
  [[nodiscard]] std::vector<int> connected_parts() const {
    const int ranks = schedule_.program.ranks;
    std::vector<int> parts(static_cast<std::size_t>(ranks), -1);
    const bool has_pair = has_struck_pair();
    // One that stands still for a while passes on nothing in time.
    const auto is_no_way = [&](int rank) {
      return is_out(rank) || !has_joined(rank) || (has_pair && has_paused(rank));
    };
    const auto is_hurt = [&](int a, int b) {
      return is_no_way(a) || is_no_way(b) ||
             std::any_of(struck_.begin(), struck_.end(), [&](const Strike& strike) {
               return is_of_a_pair(strike.damage) &&
                      std::min(strike.rank, strike.other) == std::min(a, b) &&
                      std::max(strike.rank, strike.other) == std::max(a, b);
             });
    };
    const std::function<void(int, int)> mark = [&](int rank, int part) {
      int& mine = parts[static_cast<std::size_t>(rank)];
      if (mine >= 0) return;
      mine = part;
      for (const int peer : coll::control_peers(rank, ranks)) {
        if (!is_hurt(rank, peer)) mark(peer, part);
      }
    };
    for (int rank = 0; rank < ranks; ++rank) mark(rank, rank);
    return parts;
  }

  std::string judge(Outcome& outcome) {
    const std::set<int> may_be_blamed = blamable();
    const bool has_timeouts = schedule_.program.has_timeouts() && !struck_.empty();
    // Who can hear of whom, and the first failure there.
    const std::vector<int> parts = connected_parts();
    std::map<int, const Member*> first;
    const bool has_pair = has_struck_pair();
    for (const auto& each : members_) {
      const Member& member = *each;
      outcome.operations += static_cast<int>(member.participant.steps());
      if (!member.problem.empty()) return fmt::format("rank {}: {}", member.rank, member.problem);
      const std::string& wrong = member.participant.problem();
      if (!wrong.empty()) return fmt::format("rank {}: {}", member.rank, wrong);
      if (member.failure.ok()) continue;
      outcome.noticed = true;
      if (!member.participant.buffers_untouched()) {
        return fmt::format("rank {}: its buffers changed after {}", member.rank,
                           quote(member.failure));
      }
      if (is_out(member.rank)) continue;
      if (may_be_blamed.empty() && !has_timeouts) {
        return fmt::format("rank {} failed though nothing happened: {}", member.rank,
                           quote(member.failure));
      }
      if (!is_right(member.failure, may_be_blamed)) {
        return fmt::format("rank {} blames others than {}: {}", member.rank, may_be_blamed,
                           quote(member.failure));
      }
      // Before a rank has joined it hears of the others through rank 0 alone.
      if (is_late(member) || (!member.joined && has_pair)) continue;
      const Member*& heard = first[parts[static_cast<std::size_t>(member.rank)]];
      if (heard == nullptr) heard = &member;
      if (heard->failure.culprits() != member.failure.culprits()) {
        return fmt::format("rank {} failed with {}, rank {} with {}", heard->rank,
                           quote(heard->failure), member.rank, quote(member.failure));
      }
    }
    return {};
  }

  /// A rank that gives up joining says so to those it has met.
  [[nodiscard]] bool is_late(const Member& member) const {
    return !member.joined && member.failure.kind() == ErrorKind::timeout;
  }

  [[nodiscard]] bool is_right(const Status& failure, const std::set<int>& may_be_blamed) const {
    const auto& culprits = failure.culprits();
    // A deadline may be shorter than what it takes to find out who is late. That of joining begins
    // on each rank when it does.
    if (failure.kind() == ErrorKind::timeout) return true;
    const auto is_struck = [&](int rank) { return may_be_blamed.count(rank) > 0; };
    // A rank that has left too early and one that has not disagree.
    if (failure.kind() == ErrorKind::mismatch) {
      return std::any_of(culprits.begin(), culprits.end(), is_struck);
    }
    return !culprits.empty() && std::all_of(culprits.begin(), culprits.end(), is_struck);
  }

  const ProcessSchedule& schedule_;
  JobSpec spec_;
  Trace trace_;
  sim::World world_;
  sim::Network network_;
  sim::Scheduler scheduler_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<Strike> struck_;
  Time last_strike_{};
  std::uint64_t steps_ = 0;
  std::size_t ended_ = 0;
};

}  // namespace

Outcome run(const ProcessSchedule& schedule, Trace trace) {
  if (trace == Trace::print) fmt::print("{}\n", describe(schedule));
  return ProcessCluster(schedule, trace).run();
}

}  // namespace lockstep::simulated
