// measure: times one collective of one size over ranks that are threads of this process.
//
// Before every iteration each rank writes its buffers anew, which is not timed, and meets the
// others at a barrier. An iteration takes from the moment the first rank is past the barrier until
// the last rank's call has returned, so it includes the skew with which ranks leave a barrier.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/coll/options.h"
#include "lockstep/dtype.h"
#include "lockstep/op.h"
#include "plan/plan.h"
#include "shape.h"

namespace lockstep::tool {

enum class Placement : std::uint8_t { out_of_place, in_place };
enum class Checking : std::uint8_t { off, on };

struct Trial {
  plan::Kind kind = plan::Kind::all_reduce;
  DType dtype = DType::float32;
  Op op = Op::sum;
  Shape shape = {};
  int ranks = 2;
  int root = 0;
  int iterations = 20;
  int warmups = 5;
  Placement placement = Placement::out_of_place;
  Checking checking = Checking::on;
  coll::SumOrder order = coll::SumOrder::fixed_tree;
  std::string algorithms = {};
};

struct Timing {
  std::vector<double> microseconds;  // of each iteration, in the order they ran
  std::uint64_t wrong = 0;           // elements, over all iterations and ranks
  std::string algorithm;             // that carried it out; empty if the session does not say

  /// The value below which this share of the iterations lies; 0.5 is the median.
  [[nodiscard]] double quantile(double share) const;
  [[nodiscard]] double median() const { return quantile(0.5); }
};

Timing measure(const Trial& trial);

}  // namespace lockstep::tool
