#include "launch/attempt.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>

#include "base/status.h"
#include "launch/trampoline.h"

namespace lockstep::tool {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kDrain = seconds(1);        // for pipes that outlive their rank
constexpr Duration kUnkillable = seconds(10);  // stuck in the kernel

std::optional<sys::Signal> signal_of(int number) {
  switch (number) {
    case SIGHUP:
      return sys::Signal::hangup;
    case SIGINT:
      return sys::Signal::interrupt;
    case SIGTERM:
      return sys::Signal::terminate;
    case SIGUSR1:
      return sys::Signal::user1;
    case SIGUSR2:
      return sys::Signal::user2;
    default:
      return std::nullopt;
  }
}

/// What a rank has said of a failure that is not its own.
std::vector<int> blamed_in(const std::string& path) {
  std::vector<int> ranks;
  std::string line;
  std::getline(std::ifstream(path), line);
  std::istringstream words(line);
  for (int rank = 0; words >> rank;) ranks.push_back(rank);
  return ranks;
}

void earlier(std::optional<Time>& time, std::optional<Time> other) {
  if (other && (!time || *other < *time)) time = other;
}

}  // namespace

AttemptResult Attempt::run(const ClusterSettings& cluster) {
  now_ = clock_.now();
  kills_before_ = MemoryKills::read();
  start(cluster);
  while (!finished()) wait();
  for (auto& rank : ranks_) {
    for (Rank::Pipe& pipe : rank->pipes()) rank->finish(pipe, now_);
    if (!rank->ended()) {
      display_.say("rank {} (pid {}) does not end, not even by SIGKILL; it is left behind",
                   rank->number(), rank->process().pid());
      result_.failures.push_back({.rank = rank->number(),
                                  .pid = rank->process().pid(),
                                  .status = {.how = sys::ExitStatus::How::unknown, .value = 0},
                                  .ran = now_ - rank->started()});
    }
  }
  for (RankFailure& failure : result_.failures) {
    failure.blames = blamed_in(failure_file(cluster, failure.rank));
  }
  put_cause_first(result_);
  if (result_.failed_before_stop) {
    // Only now all it wrote has been read.
    RankFailure& first = result_.failures.front();
    const Rank& rank =
        *ranks_.at(static_cast<std::size_t>(first.rank - cluster.placement.first_rank()));
    first.last_lines = rank.last_errors().lines();
    first.just_shown = rank.errors_just_shown();
  }
  return std::move(result_);
}

void Attempt::start(const ClusterSettings& cluster) {
  const std::vector<std::string> own = own_environment();
  for (int local = 0; local < cluster.placement.local_size(); ++local) {
    const int number = cluster.placement.first_rank() + local;
    ranks_.push_back(std::make_unique<Rank>(number, spawn(own, cluster, local), clock_.now(),
                                            logs_.at(static_cast<std::size_t>(local)), display_));
  }
}

std::unique_ptr<sys::Process> Attempt::spawn(const std::vector<std::string>& own,
                                             const ClusterSettings& cluster, int local) {
  try {
    return processes_.spawn({.argv = trampoline_command({.launcher = cluster.launcher_pid,
                                                         .problem_file = options_.problem_file,
                                                         .program = options_.program}),
                             .environment = rank_environment(own, cluster, local),
                             .input = sys::Command::Input::empty,
                             .output = sys::Command::Output::pipe,
                             .group = sys::Command::Group::own});
  } catch (const SystemError& error) {
    ranks_.clear();  // ends the others, and gives back what there may be too little of
    // The command may be megabytes long; the cause stands at the end.
    constexpr std::size_t kEnough = 300;
    std::string why = error.what();
    if (why.size() > kEnough) why = "..." + why.substr(why.size() - kEnough);
    raise(
        Status(ErrorKind::system_error, error.code(),
               fmt::format("cannot start rank {} of {}: {}", cluster.placement.first_rank() + local,
                           cluster.placement.size(), why)));
  }
}

bool Attempt::finished() const {
  const bool all_over = std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
    return rank->ended() && rank->drained();
  });
  return all_over || (leave_at_ && *leave_at_ <= now_);
}

void Attempt::watch(int descriptor, short events, Watch who) {
  polled_.push_back({.fd = descriptor, .events = events, .revents = 0});
  watches_.push_back(who);
}

void Attempt::wait() {
  using What = Watch::What;
  polled_.clear();
  watches_.clear();
  watch(signals_.descriptor(), POLLIN, {.what = What::signals});
  std::optional<Time> timer = next_timer();
  for (auto& rank : ranks_) {
    if (!rank->ended()) {
      watch(rank->process().end_descriptor(), POLLIN, {.what = What::end, .rank = rank.get()});
    }
    for (Rank::Pipe& pipe : rank->pipes()) {
      if (!pipe.descriptor.valid()) continue;
      Outlet& outlet = display_.outlet(pipe.stream);
      if (outlet.wants(rank->number(), now_)) {
        watch(pipe.descriptor.get(), POLLIN,
              {.what = What::pipe, .rank = rank.get(), .pipe = &pipe});
      } else {
        earlier(timer, outlet.retry_at(rank->number()));
      }
    }
  }
  for (Outlet* outlet : display_.outlets()) {
    if (outlet->pending()) {
      watch(outlet->descriptor(), POLLOUT, {.what = What::outlet, .outlet = outlet});
    }
  }
  int timeout = -1;
  if (timer) {
    const auto left = std::chrono::ceil<milliseconds>(*timer - clock_.now());
    timeout =
        static_cast<int>(std::clamp<milliseconds>(left, milliseconds(0), seconds(60)).count());
  }
  ::poll(polled_.data(), polled_.size(), timeout);
  now_ = clock_.now();

  std::vector<Rank*> looked_at;
  for (std::size_t i = 0; i < polled_.size(); ++i) {
    if (polled_[i].revents == 0) continue;
    const Watch& who = watches_[i];
    switch (who.what) {
      case What::signals:
        handle_signals();
        break;
      case What::end:
        looked_at.push_back(who.rank);
        break;
      case What::pipe:
        who.rank->read(*who.pipe, now_);
        break;
      case What::outlet:
        who.outlet->write_some();
        break;
    }
  }
  handle_ends(looked_at);
  handle_timers();
}

void Attempt::handle_signals() {
  while (const auto number = signals_.next()) {
    if (*number == SIGTSTP) {
      pass_on(sys::Signal::stop);
      ::raise(SIGSTOP);
      pass_on(sys::Signal::resume);
      continue;
    }
    const auto signal = signal_of(*number);
    if (!signal) continue;
    if (*signal != sys::Signal::interrupt && *signal != sys::Signal::terminate) {
      pass_on(*signal);
    } else if (result_.stopped_by) {
      kill_at_ = now_;
    } else {
      result_.stopped_by = *number;
      asked_to_end_ = true;
      pass_on(*signal);
      earlier(kill_at_, now_ + options_.grace);
    }
  }
}

void Attempt::pass_on(sys::Signal signal) {
  for (auto& rank : ranks_) {
    // One that has just ended is found out about by poll.
    if (!rank->ended()) static_cast<void>(rank->process().signal(signal).ok());
  }
}

void Attempt::handle_ends(const std::vector<Rank*>& looked_at) {
  std::vector<Rank*> failed;
  for (Rank* rank : looked_at) {
    if (rank->look() && !rank->status()->success()) failed.push_back(rank);
  }
  // Of those that ended within the same moment, a crash is the likelier cause: peers that notice
  // one exit with a message.
  std::stable_partition(failed.begin(), failed.end(), [](const Rank* rank) {
    return rank->status()->how == sys::ExitStatus::How::signalled;
  });
  for (Rank* rank : failed) note_failure(*rank);
}

void Attempt::note_failure(Rank& rank) {
  using How = sys::ExitStatus::How;
  const sys::ExitStatus status = *rank.status();
  const bool signalled = status.how == How::signalled;
  RankFailure failure{.rank = rank.number(),
                      .pid = rank.process().pid(),
                      .status = status,
                      .ran = now_ - rank.started()};
  failure.by_launcher =
      asked_to_end_ && signalled &&
      (status.value == SIGTERM || status.value == SIGKILL || status.value == result_.stopped_by);
  if (result_.failures.empty() && !asked_to_end_) {
    result_.failed_before_stop = true;
    terminate_at_ = now_ + options_.settle;
    if (signalled && status.value == SIGKILL) {
      failure.explanation = MemoryKills::read().explain_since(kills_before_);
    }
  }
  result_.failures.push_back(std::move(failure));
}

void Attempt::handle_timers() {
  for (auto& rank : ranks_) rank->show_due(now_);
  const bool all_ended =
      std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->ended(); });
  if (all_ended) {
    if (!leave_at_ || *leave_at_ > now_ + kDrain) leave_at_ = now_ + kDrain;
    terminate_at_.reset();
    kill_at_.reset();
    return;
  }
  if (terminate_at_ && *terminate_at_ <= now_) {
    terminate_at_.reset();
    asked_to_end_ = true;
    pass_on(sys::Signal::terminate);
    earlier(kill_at_, now_ + options_.grace);
  }
  if (kill_at_ && *kill_at_ <= now_) {
    kill_at_.reset();
    terminate_at_.reset();
    asked_to_end_ = true;
    pass_on(sys::Signal::kill);
    if (!leave_at_) leave_at_ = now_ + kUnkillable;
  }
}

std::optional<Time> Attempt::next_timer() const {
  std::optional<Time> next;
  for (const auto& rank : ranks_) {
    for (const Rank::Pipe& pipe : rank->pipes()) earlier(next, pipe.held.due());
  }
  earlier(next, terminate_at_);
  earlier(next, kill_at_);
  earlier(next, leave_at_);
  return next;
}

}  // namespace lockstep::tool
