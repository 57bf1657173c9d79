// What is said about ranks that failed: the first cause first.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "sys/proc.h"

namespace lockstep::tool {

struct RankFailure {
  int rank = 0;
  int pid = 0;
  sys::ExitStatus status;
  Duration ran = Duration::zero();
  std::deque<std::string> last_lines = {};  // of its standard error
  std::string explanation = {};             // of a SIGKILL; else empty
  std::vector<int> blames = {};             // ranks that it said are the cause; none: itself
  bool by_launcher = false;                 // it ended by a signal the launcher had sent
  bool just_shown = false;                  // what it wrote last can still be seen
};

/// How one start of all ranks went.
struct AttemptResult {
  std::vector<RankFailure> failures = {};  // in the order they were noticed
  std::optional<int> stopped_by = {};      // a signal that asked the launcher to end
  bool failed_before_stop = false;         // a rank failed without being asked to end
  std::string not_started = {};            // why the program could not be started; empty: it was

  [[nodiscard]] bool success() const noexcept { return failures.empty(); }
};

/// The rank that ends first is not always the cause: a rank that left may take longer to end than
/// the ranks that found it gone. Moves the first rank that blames no other rank to the front; if
/// there is none, a rank that is blamed.
void put_cause_first(AttemptResult& result);

/// "rank 2 (pid 4711) killed by signal 11 (SEGV) after 3.2 s".
std::string describe(const RankFailure& failure);

/// Lines for the user; there is a failure or a stop.
std::vector<std::string> failure_report(const AttemptResult& result);

}  // namespace lockstep::tool
