// check: proves plans right by executing the plans of all ranks against each other, symbolically.
//
// Proven for one request on one layout: every send has its receive of the same length; no deadlock,
// even if no message is ever buffered; no access to a buffer races with another (happens-before
// over messages, publish and await, with the caller's writes before the start and after the end of
// its own operation, and over several operations in a row); every output element has the right
// value, completed exactly once, the same on every rank; and how its sum is associated.
#pragma once

#include <string>
#include <vector>

#include "plan/algorithm.h"

namespace lockstep::plan {

enum class Aliasing : std::uint8_t { separate, in_place };

struct CheckOptions {
  Aliasing aliasing = Aliasing::separate;
  int repetitions = 3;  // operations in a row, so that reuse of slots and flags is proven too
  unsigned seed = 1;    // of the interleaving; the proof does not depend on it, its speed may
  int slots = kSlots;   // another number shows what the engine's slots are needed for
};

struct Verdict {
  std::string problem = {};  // empty: proven. Else what, which rank, which instruction
  Order order = Order::any;  // fixed_tree if every sum is associated as the fixed tree
};

/// The plans of all ranks.
std::vector<Plan> make_all(const Algorithm& algorithm, const Request& request,
                           const Layout& layout);

/// plans[r] is rank r's. Malformed plans (bad region, bad rank) are a problem, never undefined
/// behaviour.
Verdict check(const Request& request, const Layout& layout, const std::vector<Plan>& plans,
              const CheckOptions& options = {});

/// Makes the plans of all ranks with the algorithm and checks them; also that an algorithm of
/// messages uses nothing else.
Verdict check(const Algorithm& algorithm, const Request& request, const Layout& layout,
              const CheckOptions& options = {});

}  // namespace lockstep::plan
