// measure: times one collective of one size over the ranks of a group.
//
// Before every iteration each rank writes its buffers anew, which is not timed, and meets the
// others at a barrier. An iteration takes from the moment the first rank is past the barrier until
// the last rank's call has returned, so it includes the skew with which ranks leave a barrier.
// Ranks of several hosts have no clock in common: there it is the longest of the ranks' own times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/coll/session.h"
#include "trial.h"

namespace lockstep::tool {

struct Timing {
  std::vector<double> microseconds;  // of each iteration, in the order they ran
  std::uint64_t wrong = 0;           // elements, over all iterations and ranks
  std::string algorithm;             // that carried it out; empty if the session does not say

  /// The value below which this share of the iterations lies; 0.5 is the median.
  [[nodiscard]] double quantile(double share) const;
  [[nodiscard]] double median() const { return quantile(0.5); }
};

/// Over ranks that are threads of this process.
Timing measure(const Trial& trial);

/// Over a group that is there: every rank calls it with the same trial. The figures are rank 0's;
/// others get none.
Timing measure(const Trial& trial, coll::Session& group);

}  // namespace lockstep::tool
