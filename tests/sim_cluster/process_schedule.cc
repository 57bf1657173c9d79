#include "tests/sim_cluster/process_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "sim/random.h"

namespace lockstep::simulated {
namespace {

using sim::Random;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

int random_size(Random& random) {
  if (random.chance(0.05)) return 9 + static_cast<int>(random.below(8));
  return 2 + static_cast<int>(random.below(6));
}

enum class Struck : std::uint8_t { no, yes };

sim::LinkOptions random_links(Random& random, const Program& program, Struck struck) {
  sim::LinkOptions links{.delay = microseconds(1 + random.below(500)),
                         .jitter = microseconds(random.below(300))};
  if (program.has_timeouts()) return links;  // whoever is late then is late for another reason
  if (random.chance(0.15)) {                 // with little room, and slow
    // Ranks that have to agree without rank 0 give each other Timing::settle for it.
    const std::uint64_t most = struck == Struck::yes ? 2 : 20;
    links.delay = milliseconds(1 + random.below(most));
    links.jitter = milliseconds(random.below(most));
    links.buffer = 2000 + random.below(4000);
  } else if (random.chance(0.15)) {  // in pieces
    links.piece = 20 + random.below(400);
  }
  return links;
}

Strike random_strike(Random& random, int ranks) {
  Strike strike;
  strike.damage = static_cast<Damage>(random.below(kDamageCount));
  if (random.chance(0.25)) strike.damage = Damage::kill;
  const auto n = static_cast<std::uint64_t>(ranks);
  strike.rank = random.chance(0.15) ? 0 : static_cast<int>(random.below(n));
  strike.other = (strike.rank + 1 + static_cast<int>(random.below(n - 1))) % ranks;
  strike.lasts = strike.damage == Damage::stop_briefly
                     ? random.up_to(milliseconds(2500))
                     : milliseconds(3600) + random.up_to(seconds(4));
  return strike;
}

/// After how many steps of all ranks. Where some leave, mostly after that.
std::uint64_t random_moment(Random& random, const Program& program) {
  const auto& steps = program.steps;
  const auto leave = std::find_if(steps.begin(), steps.end(),
                                  [](const Step& step) { return step.action == Action::leave; });
  const bool after_it = leave != steps.end() && random.chance(0.7);
  const auto first = static_cast<std::uint64_t>(after_it ? leave - steps.begin() + 1 : 0);
  const auto ranks = static_cast<std::uint64_t>(program.ranks);
  return ranks * first +
         random.below((ranks - (after_it ? leave->ranks.size() : 0)) * (steps.size() - first) + 1);
}

double in_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

const char* to_string(Damage damage) noexcept {
  constexpr const char* names[kDamageCount] = {"stop_briefly", "stop",       "kill", "isolate",
                                               "cut",          "half_close", "lose", "lose_both",
                                               "abort",        "desert"};
  return names[static_cast<std::size_t>(damage)];
}

std::string describe(const Strike& strike) {
  if (is_of_a_pair(strike.damage)) {
    return fmt::format("{} from rank {} to rank {}", to_string(strike.damage), strike.rank,
                       strike.other);
  }
  const bool lasts = strike.damage == Damage::stop || strike.damage == Damage::stop_briefly;
  return fmt::format("{} of rank {}{}", to_string(strike.damage), strike.rank,
                     lasts ? fmt::format(" for {:.3f} s", in_seconds(strike.lasts)) : "");
}

ProcessSchedule make_process_schedule(std::uint64_t seed) {
  Random random(seed ^ 0x9C0CE55);
  ProcessSchedule schedule;
  schedule.seed = seed;
  const int ranks = random_size(random);
  schedule.program = random_program(random, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    schedule.starts.push_back(
        random.up_to(random.chance(0.1) ? seconds(2) : Duration(milliseconds(20))));
  }
  const std::uint64_t strikes = random.chance(0.12) ? 0 : random.chance(0.2) ? 1 : 2;
  for (std::uint64_t i = 0; i < strikes; ++i)
    schedule.strikes.push_back(random_strike(random, ranks));
  schedule.links = random_links(random, schedule.program, strikes == 0 ? Struck::no : Struck::yes);
  schedule.after_steps = random_moment(random, schedule.program);
  switch (random.below(4)) {
    case 0:
      break;
    case 1:
      schedule.gap = random.up_to(milliseconds(2));
      break;
    case 2:
      schedule.gap = random.up_to(milliseconds(150));
      break;
    default:
      schedule.gap = random.up_to(seconds(4));
  }
  schedule.has_key = random.chance(0.04);
  return schedule;
}

std::string describe(const ProcessSchedule& schedule) {
  std::string text =
      fmt::format("{} processes{}", schedule.program.ranks, schedule.has_key ? ", with a key" : "");
  for (std::size_t i = 0; i < schedule.strikes.size(); ++i) {
    const std::string when = i == 0 ? fmt::format("after {} steps", schedule.after_steps)
                                    : fmt::format("{:.6f} s later", in_seconds(schedule.gap));
    text += fmt::format(", {} {}", when, describe(schedule.strikes[i]));
  }
  return text + describe(schedule.program);
}

}  // namespace lockstep::simulated
