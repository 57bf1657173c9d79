// One row, measured: everybody is tried, the fastest of each family then take turns with us.
#pragma once

#include <string>
#include <vector>

#include "bench/peers/arena.h"
#include "bench/peers/rows.h"
#include "bench/support/paired.h"

namespace lockstep::bench::peers {

struct DuelOptions {
  int trials = 5;      // of everybody
  int pairs = 21;      // of us and each finalist
  int attempts = 63;   // pairs tried at most
  double limit = 300;  // seconds for the pairs of a row, once each finalist has had the least count
};

/// What became of one entry. Repetitions count only if the probe said the same before and after.
struct Outcome {
  Entry entry;
  std::vector<double> seconds = {};
  int dropped = 0;
  bool finalist = false;
  PairedResult against_ours = {};  // of a finalist
  std::string error = {};          // why it is out of the race; empty: it is not
};

struct RowResult {
  Outcome ours;
  std::vector<Outcome> others;

  /// The hardest opponent of a family: the finalist with the lowest ratio. Null if none.
  [[nodiscard]] const Outcome* hardest(const std::string& family) const;
};

/// Blocks for seconds to minutes and says on stderr how far it is. Interrupted on a signal.
RowResult measure_row(const Row& row, Arena& arena, const DuelOptions& options);

}  // namespace lockstep::bench::peers
