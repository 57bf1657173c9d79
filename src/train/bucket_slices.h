// Which lane adds up which part of a bucket, where the lanes of a worker exchange at the same time.
// A pure function: workers with the same buckets and as many lanes deal them out alike, so that
// slices of equal lanes meet.
//
// A bucket is cut into as many nearly equal slices as there are lanes, or fewer if they would be
// too small for an operation of their own; each begins at a whole cache line. Slices go to the
// lanes in turn, from bucket to bucket. If there is little in all, few lanes take part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "train/bucket_plan.h"

namespace lockstep::train {

struct BucketSlice {
  std::size_t bucket = 0;
  std::int64_t begin = 0;  // in elements
  std::int64_t elements = 0;
};

/// By lane, in the order of buckets. Lanes from the end on have none, the first is always there.
using LaneSlices = std::vector<std::vector<BucketSlice>>;

/// From here on another lane is worth its operation.
inline constexpr std::int64_t kLeastSliceBytes = 16 << 10;

LaneSlices deal_slices(const std::vector<BucketLayout>& buckets, int lanes);

/// Into how many slices this bucket is cut.
int count_slices(const LaneSlices& lanes, std::size_t bucket);

}  // namespace lockstep::train
