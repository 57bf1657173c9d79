// Program: what the ranks of a simulated job do together. Collectives of all ranks and of subgroups,
// messages, started operations, splits, pauses; some ranks may leave before the others.
//
//   const Program program = random_program(random, 5);
//   Participant participant(program, rank);          // on each rank, on its simulated thread:
//   participant.run(std::move(session), [] {});      // throws what a call throws
//
// Inputs are pure functions of the step, the rank and the position, so every rank knows what its
// results must be. Thread rule: a Participant belongs to the thread that runs it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "lockstep/coll/session.h"
#include "sim/random.h"

namespace lockstep::simulated {

enum class Action : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  barrier,
  messages,  // neighbours in pairs: there and back
  started,   // several all-reduces at once
  split,
  close,    // of the groups of a division
  compute,  // some ranks are busy with something else for a while
  leave,    // some ranks close all their sessions
};
inline constexpr int kCollectives = static_cast<int>(Action::barrier) + 1;
const char* to_string(Action action) noexcept;

/// All groups that one split makes. The first one of a program is the group of all ranks.
struct Division {
  int parent = 0;                        // the division whose groups were split
  std::vector<std::vector<int>> groups;  // members in the order of the group

  /// The group that has this rank.
  [[nodiscard]] const std::vector<int>& group_of(int rank) const;
};

struct Step {
  Action action = Action::barrier;
  int division = 0;  // whose groups do it; of a split: the one it makes
  std::size_t count = 0;
  std::uint64_t values = 0;
  std::size_t root = 0;         // counted in the group, modulo its size
  Duration timeout{};           // of each call; zero: none
  std::vector<int> ranks = {};  // compute, leave: those who do it
  Duration lasts{};             // compute
  bool keeps_session = false;   // leave: the closed session stays an object until the end
};

struct Program {
  int ranks = 1;
  std::vector<Division> divisions;
  std::vector<Step> steps;

  /// Calls have deadlines of their own, so a rank that is late may end the generation.
  [[nodiscard]] bool has_timeouts() const noexcept;
  /// Messages have groups of their own.
  [[nodiscard]] bool has_several_groups() const noexcept;
  /// How long the ranks compute, all steps together.
  [[nodiscard]] Duration computes() const noexcept;
};

Program random_program(sim::Random& random, int ranks);
std::string describe(const Program& program);

class Participant {
 public:
  Participant(const Program& program, int rank) : program_(program), rank_(rank) {}
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;

  /// Every step in which this rank takes part; `after_each` is told of each.
  void run(coll::Session world, const std::function<void()>& after_each);
  /// The rank leaves in good order before its next step, although others count on it.
  void desert() noexcept { deserts_ = true; }
  void abort(const std::string& reason) noexcept;
  /// After run() has thrown: calls again in every session that is open. Another cause than `why`, or
  /// one that takes time, is a problem.
  void call_again(const Status& why);
  /// The rank has left, and its program keeps the closed sessions for as long as it runs.
  [[nodiscard]] bool keeps_sessions() const noexcept { return keeps_sessions_; }
  /// Closes and forgets all sessions.
  void close() noexcept { sessions_.clear(); }

  [[nodiscard]] std::size_t steps() const noexcept { return steps_; }
  [[nodiscard]] bool finished() const noexcept { return finished_; }
  /// What this rank was waiting for: "step 3: all_reduce of 20 in [0, 2]".
  [[nodiscard]] std::string at() const;
  /// A wrong result, empty if there is none.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  /// After run() has thrown: whether the buffers of that step are still as they were then.
  [[nodiscard]] bool buffers_untouched() const { return buffers_ == buffers_then_; }

 private:
  using Values = std::vector<std::int64_t>;

  void perform(const Step& step);
  void collective(const Step& step, coll::Session& group, const std::vector<int>& members);
  void split(const Step& step);
  void leave(const Step& step);
  Values& buffer(std::size_t count);
  /// The buffer of `place` before the operation.
  [[nodiscard]] Values input(const Step& step, int place, std::size_t count) const;
  void expect(const Values& result, const Values& right, const Step& step);
  [[nodiscard]] bool takes_part(const Step& step) const;

  const Program& program_;
  int rank_;
  std::vector<std::optional<coll::Session>> sessions_;  // by division
  std::deque<Values> buffers_;                          // of the step
  std::deque<Values> buffers_then_;
  std::size_t steps_ = 0;
  bool deserts_ = false;
  bool left_ = false;
  bool keeps_sessions_ = false;
  bool finished_ = false;
  std::string problem_;
};

}  // namespace lockstep::simulated
