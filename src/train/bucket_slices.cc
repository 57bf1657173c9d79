#include "train/bucket_slices.h"

#include <algorithm>

namespace lockstep::train {

namespace {

std::int64_t slices_worth(std::int64_t bytes, int most) {
  return std::clamp<std::int64_t>(bytes / kLeastSliceBytes, 1, most);
}

}  // namespace

LaneSlices deal_slices(const std::vector<BucketLayout>& buckets, int lanes) {
  std::int64_t bytes = 0;
  for (const BucketLayout& bucket : buckets) bytes += bucket.bytes();
  LaneSlices dealt(static_cast<std::size_t>(slices_worth(bytes, lanes)));
  std::size_t next = 0;  // lane
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const BucketLayout& bucket = buckets[b];
    const std::int64_t slices = slices_worth(bucket.bytes(), static_cast<int>(dealt.size()));
    const std::int64_t line = line_elements(bucket.dtype);
    const std::int64_t lines = (bucket.elements + line - 1) / line;
    const auto begin_of = [&](std::int64_t slice) {
      return std::min(lines * slice / slices * line, bucket.elements);
    };
    for (std::int64_t s = 0; s < slices; ++s) {
      dealt[next].push_back({b, begin_of(s), begin_of(s + 1) - begin_of(s)});
      next = (next + 1) % dealt.size();
    }
  }
  while (dealt.size() > 1 && dealt.back().empty()) dealt.pop_back();
  return dealt;
}

int count_slices(const LaneSlices& lanes, std::size_t bucket) {
  std::int64_t count = 0;
  for (const auto& lane : lanes) {
    count += std::count_if(lane.begin(), lane.end(),
                           [&](const BucketSlice& slice) { return slice.bucket == bucket; });
  }
  return static_cast<int>(count);
}

}  // namespace lockstep::train
