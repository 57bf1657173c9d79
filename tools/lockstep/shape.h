// Shape: what "so many bytes" means for a collective, counted as nccl-tests count.
//
// The size of a collective is that of the largest buffer of a rank: all_gather's output,
// reduce_scatter's input, either buffer of all_to_all. Counts are rounded down, but never to
// nothing unless the size is 0.
#pragma once

#include <cstdint>

#include "lockstep/dtype.h"
#include "plan/algorithm.h"
#include "plan/plan.h"

namespace lockstep::tool {

struct Shape {
  std::uint64_t count = 0;   // elements; per rank where each rank has a part
  std::uint64_t input = 0;   // elements of a rank's input; of the root's only for scatter
  std::uint64_t output = 0;  // elements of a rank's output; of the root's only for gather
  std::uint64_t bytes = 0;   // the size that was asked for, after rounding
};

Shape shape_of(plan::Kind kind, std::uint64_t bytes, DType dtype, int ranks);

/// The request of a shape, as a session would make it.
plan::Request request_of(plan::Kind kind, const Shape& shape, DType dtype, int ranks);

/// Whether the collective adds; has a root; can put its result where its input was.
bool reduces(plan::Kind kind) noexcept;
bool has_root(plan::Kind kind) noexcept;
bool has_in_place(plan::Kind kind) noexcept;
bool has_out_of_place(plan::Kind kind) noexcept;

/// Bandwidth of the busiest link over size / time, as nccl-tests define it for each collective.
double bus_factor(plan::Kind kind, int ranks) noexcept;

}  // namespace lockstep::tool
