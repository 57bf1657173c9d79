// Attempt: one start of all local ranks, watched until all have ended.
//
// One thread, one poll(2) over pipes, processes, signals and what waits to be shown.
//
//   * A rank fails: the others may go on for `settle` to fail with messages of their own, then get
//     SIGTERM, and SIGKILL after `grace`.
//   * Hangup, interrupt, terminate, user1 and user2 are passed on to every rank's process group.
//     After an interrupt or terminate, ranks have `grace` to end; a second one kills them.
//   * The terminal's stop (^Z) stops the ranks, then the launcher; they go on together.
//
// Everything it starts has ended when run() returns, and before an exception leaves it.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/display.h"
#include "launch/failure_report.h"
#include "launch/memory_kills.h"
#include "launch/rank.h"
#include "launch/rank_environment.h"
#include "launch/signal_queue.h"
#include "sys/proc.h"

namespace lockstep::tool {

struct AttemptOptions {
  std::vector<std::string> program;
  std::string problem_file = {};  // see trampoline.h
  Duration settle = Duration::zero();
  Duration grace = Duration::zero();
};

class Attempt {
 public:
  /// `logs` has one for each local rank. All but the options outlive it.
  Attempt(AttemptOptions options, sys::Processes& processes, SignalQueue& signals, Display& display,
          std::vector<RankLog>& logs)
      : options_(std::move(options)),
        processes_(processes),
        signals_(signals),
        display_(display),
        logs_(logs) {}

  AttemptResult run(const ClusterSettings& cluster);

 private:
  /// Who waits for an entry of the poll list.
  struct Watch {
    enum class What : unsigned char { signals, end, pipe, outlet } what;
    Rank* rank = nullptr;
    Rank::Pipe* pipe = nullptr;
    Outlet* outlet = nullptr;
  };

  void start(const ClusterSettings& cluster);
  std::unique_ptr<sys::Process> spawn(const std::vector<std::string>& own,
                                      const ClusterSettings& cluster, int local);
  [[nodiscard]] bool finished() const;
  void wait();
  void watch(int descriptor, short events, Watch who);
  void handle_signals();
  void pass_on(sys::Signal signal);
  void handle_ends(const std::vector<Rank*>& looked_at);
  void note_failure(Rank& rank);
  void handle_timers();
  [[nodiscard]] std::optional<Time> next_timer() const;

  AttemptOptions options_;
  sys::Processes& processes_;
  SignalQueue& signals_;
  Display& display_;
  std::vector<RankLog>& logs_;
  MonotonicClock clock_;
  Time now_;
  MemoryKills kills_before_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<pollfd> polled_;
  std::vector<Watch> watches_;  // by index of polled_
  AttemptResult result_;
  bool asked_to_end_ = false;  // terminate or kill has been sent, by us or passed on

  std::optional<Time> terminate_at_;  // after a failure
  std::optional<Time> kill_at_;       // after terminate
  std::optional<Time> leave_at_;      // all ended, or killed: pipes others hold are given up
};

}  // namespace lockstep::tool
