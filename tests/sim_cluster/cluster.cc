#include "tests/sim_cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "coll/control.h"
#include "coll/group_spec.h"
#include "sim/network.h"
#include "sim/world.h"
#include "tests/sim_cluster/censor.h"
#include "tests/sim_cluster/late_connections.h"
#include "tests/sim_cluster/mesh.h"
#include "tests/sim_cluster/node.h"
#include "transport/memory.h"
#include "transport/stream.h"

namespace lockstep::simulated {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using transport::kNobody;

constexpr Duration kDeadline = seconds(60);  // virtual: nothing takes this long but a hang
constexpr Duration kLinger = seconds(1);     // after a failure, until all have read of it
constexpr Duration kFarewell = seconds(15);  // after a goodbye, for those of the others
constexpr int kRestlessPolls = 200'000;      // in memory time stands still: count polls

Status aborted_by(int rank) {
  return {ErrorKind::cancelled, Code::cancelled, fmt::format("rank {} gave up", rank), {rank}};
}

template <class... Args>
void say(Trace trace, fmt::format_string<Args...> format, Args&&... args) {
  if (trace == Trace::print) fmt::print("{}\n", fmt::format(format, std::forward<Args>(args)...));
}

/// How a rank ended, for the judge.
struct Ending {
  const Node* node = nullptr;
  Status cause;          // of its generation's failure; ok if there was none
  bool survivor = true;  // not the victim of a fatal fault
};

std::string quote(const Status& cause) {
  return fmt::format("{} {} \"{}\"", to_string(cause.kind()),
                     fmt::format("{}", fmt::join(cause.culprits(), ",")), cause.message());
}

/// What must hold of the survivors of a fatal fault. Empty: it does.
std::string judge_cause(const Schedule& schedule, const Status& cause) {
  const std::vector<int> victim = {schedule.victim};
  switch (schedule.fault) {
    case Fault::kill:
    case Fault::silence:
    case Fault::long_pause:
      if (cause.kind() == ErrorKind::peer_lost && cause.culprits() == victim) return {};
      break;
    case Fault::cut:
    case Fault::half_close:
      // Both are well and each may take the other for dead; one of them is believed.
      if (cause.kind() == ErrorKind::peer_lost &&
          (cause.culprits() == victim || cause.culprits() == std::vector{schedule.neighbour})) {
        return {};
      }
      break;
    case Fault::abort:
      if (cause.kind() == ErrorKind::cancelled && cause.culprits() == victim) return {};
      break;
    case Fault::mismatch: {
      const auto& who = cause.culprits();
      const bool named = std::find(who.begin(), who.end(), schedule.victim) != who.end();
      const bool short_list = schedule.other_tasks.size() < schedule.tasks.size();
      if (named && (cause.kind() == ErrorKind::mismatch ||
                    (short_list && cause.kind() == ErrorKind::peer_lost))) {
        return {};
      }
      break;
    }
    default:
      break;
  }
  return "the wrong cause: " + quote(cause);
}

/// Whether all have to name the same culprits. Of two that have lost each other each may name the
/// other if they have nobody through whom they could agree, or if a rank has done its last
/// operation: it does not pass on a verdict once it has begun to leave.
bool must_agree(const Schedule& schedule, const std::vector<Ending>& endings) {
  if (!breaks_connections(schedule.fault)) return true;
  return schedule.ranks() > 2 && std::none_of(endings.begin(), endings.end(), [](const Ending& e) {
           return e.node->phase() == Phase::finished;
         });
}

std::string judge(const Schedule& schedule, const std::vector<Ending>& endings, Outcome& outcome) {
  std::vector<std::vector<Bytes>> expected;
  expected.reserve(schedule.tasks.size());
  for (const Task& task : schedule.tasks) {
    expected.push_back(expected_outputs(task, schedule.layout));
  }
  std::optional<Status> common;
  for (const Ending& ending : endings) {
    const Node& node = *ending.node;
    outcome.operations += static_cast<int>(node.completed());
    if (!node.complaint().empty()) return fmt::format("rank {}: {}", node.rank(), node.complaint());
    // What the odd one computes after it went its own way is its own business; and the others are
    // right up to that operation.
    const std::size_t most = schedule.fault != Fault::mismatch ? SIZE_MAX
                             : node.rank() == schedule.victim  ? schedule.first_difference
                                                               : schedule.first_difference + 1;
    std::string wrong = node.check_outputs(expected, most);
    if (!wrong.empty()) return wrong;
    if (!ending.survivor) continue;
    if (ending.cause.ok()) {
      if (node.phase() != Phase::finished) return node.describe() + " without a cause";
      continue;
    }
    outcome.noticed = true;
    if (is_harmless(schedule.fault)) {
      return fmt::format("rank {} failed though nothing happened: {}", node.rank(),
                         quote(ending.cause));
    }
    const std::string bad = judge_cause(schedule, ending.cause);
    if (!bad.empty()) return fmt::format("rank {} failed with {}", node.rank(), bad);
    if (!must_agree(schedule, endings)) continue;
    if (!common) common = ending.cause;
    if (common->kind() != ending.cause.kind() || common->culprits() != ending.cause.culprits()) {
      return fmt::format("rank {} failed with {}, others with {}", node.rank(), quote(ending.cause),
                         quote(*common));
    }
  }
  // Over streams leaving compares what all have asked for, so no disagreement stays hidden.
  if (schedule.fault == Fault::mismatch && schedule.transport == Transport::stream) {
    for (const Ending& ending : endings) {
      if (ending.cause.ok()) return fmt::format("rank {} noticed no mismatch", ending.node->rank());
    }
  }
  return {};
}

class StreamCluster {
 public:
  StreamCluster(const Schedule& schedule, Planted planted, Trace trace)
      : schedule_(schedule),
        trace_(trace),
        world_(schedule.seed ^ 0x5EED),
        network_(world_, links()),
        data_(make_mesh(world_, network_, schedule.ranks(), 4000, [](int, int) { return true; })),
        control_(make_mesh(world_, network_, schedule.ranks(), 5000, [&](int low, int high) {
          const auto peers = coll::control_peers(low, schedule.ranks());
          return std::find(peers.begin(), peers.end(), high) != peers.end();
        })) {
    start_ = world_.now();
    const bool hides = planted == Planted::unchecked_requests;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      for (auto& connection : control_[r]) {
        if (connection && planted == Planted::swallowed_aborts) {
          connection = std::make_unique<Censor>(std::move(connection));
        }
      }
      auto& member = members_.emplace_back(
          std::make_unique<Member>(schedule, rank, hides && rank == schedule.victim));
      member->control =
          std::make_unique<coll::Control>(coll::Control::Setup{.rank = rank,
                                                               .size = schedule.ranks(),
                                                               .generation = 1,
                                                               .failure = &member->failure,
                                                               .history = &member->history,
                                                               .peers = borrow(control_[r]),
                                                               .timing = {}});
      member->link = std::make_unique<transport::StreamLink>(
          transport::StreamLink::Setup{.rank = rank,
                                       .size = schedule.ranks(),
                                       .generation = 1,
                                       .failure = &member->failure,
                                       .clock = &world_,
                                       .peers = borrow(data_[r]),
                                       .checks = std::vector(data_[r].size(), wire::Check::crc32c),
                                       .history = &member->history,
                                       .begun = member->control->enter_group(coll::kWorld)});
      member->process = &network_.at(host(rank));
    }
  }

  Outcome run() {
    Outcome outcome;
    const Time deadline = start_ + kDeadline;
    std::vector<Member*> ready;
    std::uint64_t polls = 0;
    for (;;) {
      if (!struck_ && polls >= schedule_.strikes_at) strike();
      ready.clear();
      bool all_over = true;
      for (auto& member : members_) {
        all_over = all_over && member->over;
        if (is_ready(*member)) ready.push_back(member.get());
      }
      if (all_over || world_.now() >= deadline) break;
      // Now and then the network moves on while ranks still have something to do.
      if (!ready.empty() && !(world_.next() < Time::max() && world_.random().chance(0.1))) {
        poll(*ready[world_.random().below(ready.size())]);
        ++polls;
      } else {
        advance(deadline);
      }
    }
    outcome.simulated = world_.now() - start_;
    outcome.struck = struck_;
    std::vector<Ending> endings;
    for (const auto& member : members_) {
      const bool victim = member->node.rank() == schedule_.victim;
      if (!member->over) {
        outcome.hung = true;
        outcome.problem += (outcome.problem.empty() ? "hang: " : "; ") + member->node.describe();
      }
      if (member->failure.proposed() && !member->failure.raised() &&
          network_.alive(host(member->node.rank()))) {
        outcome.problem += fmt::format("rank {} reported to no effect: {}", member->node.rank(),
                                       quote(member->failure.proposal()));
      }
      endings.push_back({.node = &member->node,
                         .cause = member->failure.cause(),
                         .survivor = !(victim && (schedule_.fault == Fault::kill ||
                                                  schedule_.fault == Fault::silence))});
    }
    const bool some_left = std::any_of(members_.begin(), members_.end(),
                                       [](const auto& member) { return member->said_goodbye; });
    outcome.known = outcome.hung &&
                    known_hang({.in_silence = is_silent(schedule_.fault), .some_left = some_left});
    if (outcome.known) outcome.problem.clear();
    if (outcome.problem.empty() && !outcome.hung) {
      outcome.problem = judge(schedule_, endings, outcome);
    }
    return outcome;
  }

 private:
  struct Member {
    Member(const Schedule& schedule, int rank, bool hides) : node(schedule, rank, hides) {}
    Node node;
    transport::Failure failure;
    transport::History history;
    std::unique_ptr<transport::StreamLink> link;
    std::unique_ptr<coll::Control> control;
    sim::ProcessNetwork* process = nullptr;
    std::uint64_t seen = UINT64_MAX;  // activity of the network at the last poll
    Time paused_until{};
    bool busy = true;  // could go on at the last poll
    bool reported = false;
    bool lingers = false;
    Time gives_up = Time::max();  // waiting for peers to read its last word
    bool said_goodbye = false;
    bool over = false;  // finished or failed, and gone; or killed
  };

  sim::LinkOptions links() {
    sim::Random random(schedule_.seed ^ 0x11C5);
    sim::LinkOptions options{.delay = microseconds(1 + random.below(500)),
                             .jitter = microseconds(random.below(300))};
    if (schedule_.fault == Fault::delay) {
      options.delay = milliseconds(1 + random.below(30));
      options.jitter = milliseconds(random.below(30));
      options.buffer = 200 + random.below(2000);
    } else if (schedule_.fault == Fault::choppy) {
      options.piece = 1 + random.below(40);
      options.buffer = 64 + random.below(1000);
    }
    return options;
  }

  bool is_ready(const Member& member) const {
    if (member.over || world_.now() < member.paused_until) return false;
    return member.busy || member.process->activity() != member.seen ||
           std::min(member.control->next_poll(), member.gives_up) <= world_.now();
  }

  void poll(Member& member) {
    Node& node = member.node;
    member.seen = member.process->activity();
    const Phase before = node.phase();
    const std::size_t completed = node.completed();
    const int budget =
        world_.random().chance(0.5) ? INT_MAX : 1 + static_cast<int>(world_.random().below(4));
    if (world_.random().chance(0.5)) node.poll(*member.link, budget);
    member.control->poll(world_.now());
    late_.serve(node.rank(), world_.now());
    node.poll(*member.link, budget);
    const int awaited = node.waiting_for();
    if (awaited != kNobody) {
      const Status missing = member.control->missing(
          awaited, coll::kWorld, node.descriptor(),
          member.link->suspect(awaited) ? coll::DataPath::over : coll::DataPath::open);
      if (!missing.ok()) member.failure.report(missing);
    }
    // What was reported just now goes out at once.
    if (member.failure.proposed() && !member.reported) {
      member.reported = true;
      member.control->poll(world_.now());
    }
    member.busy = node.phase() == Phase::working && (awaited == kNobody || member.failure.raised());
    if (node.completed() != completed) {
      say(trace_, "{:>9.3f} ms  rank {} completed operation {}", elapsed(), node.rank(),
          node.completed());
    }
    if (node.phase() == Phase::finished && !member.said_goodbye) {
      member.said_goodbye = true;
      member.gives_up = world_.now() + kFarewell;
      member.control->goodbye(node.sequence());
      member.control->poll(world_.now());
    }
    if (node.phase() != before) say(trace_, "{:>9.3f} ms  {}", elapsed(), node.describe());
    if (node.phase() == Phase::working) return;
    if (member.failure.raised() && !member.lingers) {
      member.lingers = true;
      member.gives_up = world_.now() + kLinger;
    }
    if (member.control->may_leave() || world_.now() >= member.gives_up) leave(member);
  }

  /// The process ends: its connections close.
  void leave(Member& member) {
    member.over = true;
    const auto rank = static_cast<std::size_t>(member.node.rank());
    if (member.failure.raised()) {
      say(trace_, "{:>9.3f} ms  rank {} leaves: {}", elapsed(), rank,
          quote(member.failure.cause()));
    } else {
      say(trace_, "{:>9.3f} ms  rank {} leaves", elapsed(), rank);
    }
    member.control.reset();
    member.link.reset();
    data_[rank].clear();
    control_[rank].clear();
    late_.close(static_cast<int>(rank));
  }

  void strike() {
    struck_ = true;
    Member& victim = *members_[static_cast<std::size_t>(schedule_.victim)];
    if (victim.over) return;
    if (schedule_.fault > Fault::choppy && schedule_.fault != Fault::mismatch) {
      say(trace_, "{:>9.3f} ms  {} of rank {}", elapsed(), to_string(schedule_.fault),
          schedule_.victim);
    }
    switch (schedule_.fault) {
      case Fault::short_pause:
      case Fault::long_pause:
        victim.paused_until = world_.now() + schedule_.lasts;
        break;
      case Fault::kill:
        network_.kill(host(schedule_.victim));
        victim.over = true;
        break;
      case Fault::silence:
        network_.silence_all(host(schedule_.victim));
        if (schedule_.seed % 2 == 0) heal_at_ = world_.now() + schedule_.lasts;
        break;
      case Fault::cut:
        network_.cut(host(schedule_.victim), host(schedule_.neighbour));
        break;
      case Fault::half_close:
        network_.half_close({.from = host(schedule_.victim), .to = host(schedule_.neighbour)});
        break;
      case Fault::abort:
        if (victim.node.phase() != Phase::working) break;
        victim.failure.report(aborted_by(schedule_.victim));
        victim.busy = true;
        break;
      default:
        break;
    }
  }

  void advance(Time deadline) {
    Time next = std::min(deadline, heal_at_);
    for (const auto& member : members_) {
      if (member->over) continue;
      next = std::min(next, std::max(std::min(member->control->next_poll(), member->gives_up),
                                     member->paused_until));
    }
    if (world_.next() <= next) {
      world_.step();
    } else if (next > world_.now()) {
      world_.run_for(next - world_.now());
    }
    if (world_.now() >= heal_at_) {
      heal_at_ = Time::max();
      network_.heal_all(host(schedule_.victim));
    }
  }

  [[nodiscard]] double elapsed() const {
    return std::chrono::duration<double, std::milli>(world_.now() - start_).count();
  }

  const Schedule& schedule_;
  Trace trace_;
  sim::World world_;
  sim::Network network_;
  Mesh data_;
  Mesh control_;
  std::vector<std::unique_ptr<Member>> members_;
  LateConnections late_{network_, [this](int rank) {
                          const Member& member = *members_[static_cast<std::size_t>(rank)];
                          return member.over ? nullptr : member.control.get();
                        }};
  Time start_{};
  Time heal_at_ = Time::max();
  bool struck_ = false;
};

Outcome run_in_memory(const Schedule& schedule, Planted planted, Trace trace) {
  sim::Random random(schedule.seed ^ 0x3E30);
  const int ranks = schedule.ranks();
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  const auto generation = std::make_shared<transport::MemoryGeneration>(ranks);
  const auto group = std::make_shared<transport::MemoryGroup>(generation, all);
  std::vector<std::unique_ptr<transport::MemoryLink>> links;
  std::vector<std::unique_ptr<Node>> nodes;
  for (int rank = 0; rank < ranks; ++rank) {
    links.push_back(std::make_unique<transport::MemoryLink>(group, rank));
    nodes.push_back(std::make_unique<Node>(
        schedule, rank, planted == Planted::unchecked_requests && rank == schedule.victim));
  }
  Outcome outcome;
  std::vector<std::size_t> working(all.begin(), all.end());
  for (std::uint64_t polls = 0; !working.empty() && polls < kRestlessPolls; ++polls) {
    if (!outcome.struck && polls >= schedule.strikes_at) {
      outcome.struck = true;
      if (schedule.fault == Fault::abort) generation->fail(aborted_by(schedule.victim));
    }
    const std::size_t chosen = random.below(working.size());
    const std::size_t rank = working[chosen];
    Node& node = *nodes[rank];
    const std::size_t completed = node.completed();
    node.poll(*links[rank], 1);
    const int awaited = node.waiting_for();
    // The checks of a long wait, without the wait.
    if (awaited != kNobody && random.chance(0.1)) {
      links[rank]->wait(
          awaited, [] { return false; }, Deadline::at(Time{}));
    }
    if (node.completed() != completed) {
      say(trace, "{:>6}  rank {} completed operation {}", polls, rank, node.completed());
    }
    if (node.phase() == Phase::working) continue;
    say(trace, "{:>6}  {}", polls, node.describe());
    links[rank]->leave();
    working.erase(working.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  std::vector<Ending> endings;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    if (nodes[rank]->phase() == Phase::working) {
      outcome.hung = true;
      outcome.problem += (outcome.problem.empty() ? "hang: " : "; ") + nodes[rank]->describe();
    }
    endings.push_back(
        {.node = nodes[rank].get(),
         .cause = nodes[rank]->phase() == Phase::failed ? links[rank]->failure() : Status(),
         .survivor = true});
  }
  if (outcome.problem.empty()) outcome.problem = judge(schedule, endings, outcome);
  return outcome;
}

}  // namespace

Outcome run(const Schedule& schedule, Planted planted, Trace trace) {
  say(trace, "{}", describe(schedule));
  if (schedule.transport == Transport::memory) return run_in_memory(schedule, planted, trace);
  return StreamCluster(schedule, planted, trace).run();
}

}  // namespace lockstep::simulated
