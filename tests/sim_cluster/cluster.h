// Cluster: executes a schedule in virtual time, one thread, and judges it.
#pragma once

#include <string>

#include "tests/sim_cluster/schedule.h"

namespace lockstep::simulated {

/// A bug put in on purpose, to see that the judgement finds it.
enum class Planted : std::uint8_t {
  none,
  swallowed_aborts,    // control planes that never tell anybody
  unchecked_requests,  // descriptors that hide a difference
};

enum class Trace : std::uint8_t { off, print };

/// A rank that never ended, as far as it matters for known_hang().
struct Hang {
  bool in_silence = false;      // bytes were lost, and no connection ended
  bool of_a_pair = false;       // those from one rank to another
  bool some_left = false;       // a rank had left in good order
  bool several_groups = false;  // the ranks used more than one group
};

/// Whether the runtime is known not to bound that wait yet: it lasts until progress_timeout. Such a
/// hang is counted apart and is no failure. To be removed one by one:
///
/// * The last bytes of a rank that has left are lost, and the rank that waits for them is not its
///   control peer. Only control peers notice its silence, and they tell nobody.
/// * Bytes that are not acknowledged are noticed by a sender that waits in the same group. One that
///   waits in another group does not look.
constexpr bool known_hang(const Hang& hang) noexcept {
  return (hang.in_silence && hang.some_left) || (hang.of_a_pair && hang.several_groups);
}

struct Outcome {
  std::string problem;   // empty: as it should be
  bool hung = false;     // a rank never ended
  bool known = false;    // but that is a known weakness, and no problem
  bool struck = false;   // the fault came before the end
  bool noticed = false;  // somebody's generation failed
  int operations = 0;    // completed, over all ranks
  Duration simulated{};
};

Outcome run(const Schedule& schedule, Planted planted = Planted::none, Trace trace = Trace::off);

}  // namespace lockstep::simulated
