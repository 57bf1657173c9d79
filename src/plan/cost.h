// What moving and adding bytes costs: alpha (a synchronisation), beta (a byte moved) and gamma (a
// byte read or written by a reduction) per class of link. The defaults are estimates of an
// ordinary server; a user can replace them by figures of their own (see parse_costs).
#pragma once

#include <optional>
#include <string_view>

#include "base/status.h"
#include "plan/algorithm.h"

namespace lockstep::plan {

struct LinkCost {
  double alpha_us = 0;          // one message or one flag between two ranks
  double beta_us_per_byte = 0;  // bandwidth of one direction
};

struct Costs {
  LinkCost memory{0.15, 1.0 / 12'000};  // threads, shared memory: 12 GB/s
  LinkCost tcp{20, 1.0 / 1'200};        // 1.2 GB/s
  double gamma_us_per_byte = 1.0 / 10'000;
  std::optional<Staging> staging = {};  // none: the ranks of a host measure it when they join
};

/// "memory.alpha=0.2,memory.bandwidth=12e9,tcp.alpha=20,tcp.bandwidth=1.2e9,reduce.bandwidth=10e9"
/// (microseconds; bytes per second), "staged.chunk=512K,staged.around_cache=1"; replaces what is
/// named.
Status parse_costs(std::string_view text, Costs& costs);

/// Estimated microseconds until the last rank is done.
double estimate(const Algorithm& algorithm, const Request& request, const Layout& layout,
                std::uint64_t element_bytes, Access access, const Costs& costs);

}  // namespace lockstep::plan
