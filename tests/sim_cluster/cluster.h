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

struct Outcome {
  std::string problem;   // empty: as it should be
  bool hung = false;     // the problem is a rank that never ended
  bool struck = false;   // the fault came before the end
  bool noticed = false;  // somebody's generation failed
  int operations = 0;    // completed, over all ranks
  Duration simulated{};
};

Outcome run(const Schedule& schedule, Planted planted = Planted::none, Trace trace = Trace::off);

}  // namespace lockstep::simulated
