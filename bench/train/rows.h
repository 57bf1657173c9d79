// The rows of the comparison: who trains what beside whom, and what is required of us.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/support/paired.h"
#include "bench/train/field.h"

namespace lockstep::bench::train {

struct Row {
  std::string name;  // of the target, where there is one
  std::string net;
  std::string ours;
  std::string other;
  std::optional<double> required = {};  // none: for information
};

/// In the order they are measured: those of one net follow each other.
std::vector<Row> all_rows();

struct RowResult {
  PairedResult ratio;  // of speeds; seconds are those of one step
  int steps = 0;       // in each repetition
  std::int64_t parameters = 0;
  std::string error = {};  // why it could not be measured; empty: it was
};

struct RowOptions {
  PairOptions pairs = {};
  double repetition_seconds = 0.4;
};

/// Blocks for seconds to minutes.
RowResult measure_row(const Row& row, Field& field, const RowOptions& options);

}  // namespace lockstep::bench::train
