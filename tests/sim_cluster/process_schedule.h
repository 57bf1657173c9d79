// ProcessSchedule: what one seed stands for in a cluster of whole processes. Who takes part, what they
// do, how the network is, and what goes wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "sim/channel.h"
#include "tests/sim_cluster/program.h"

namespace lockstep::simulated {

enum class Damage : std::uint8_t {
  stop_briefly,  // a process stands still for less than Liveness::dead
  stop,          // and for more
  kill,
  isolate,     // a process is cut off from all others, without any end of a connection
  cut,         // the connections between two processes break
  half_close,  // those from one to another are closed in that direction
  lose,        // what one sends to another is lost, silently
  lose_both,   // and what that one answers
  abort,       // a user gives up
  desert,      // a process closes its sessions although others count on it
};
inline constexpr int kDamageCount = 10;
const char* to_string(Damage damage) noexcept;

/// A connection between two processes that are well is hurt.
constexpr bool is_of_a_pair(Damage damage) noexcept {
  return damage >= Damage::cut && damage <= Damage::lose_both;
}
/// The process takes no part any more, for a while at least.
constexpr bool is_of_a_process(Damage damage) noexcept {
  return damage >= Damage::stop && damage <= Damage::isolate;
}

/// Bytes are lost, and no connection ends.
constexpr bool is_silent(Damage damage) noexcept {
  return damage == Damage::isolate || damage == Damage::lose || damage == Damage::lose_both;
}

struct Strike {
  Damage damage = Damage::kill;
  int rank = 0;
  int other = 0;     // of a pair
  Duration lasts{};  // of a stop
};
std::string describe(const Strike& strike);

struct ProcessSchedule {
  std::uint64_t seed = 0;
  Program program;
  sim::LinkOptions links;
  std::vector<Duration> starts;  // when each rank begins to join
  std::vector<Strike> strikes;
  std::uint64_t after_steps = 0;  // the first one comes after so many steps of all ranks together
  Duration gap{};                 // and the second so long after it
  bool has_key = false;
};

ProcessSchedule make_process_schedule(std::uint64_t seed);
std::string describe(const ProcessSchedule& schedule);

}  // namespace lockstep::simulated
