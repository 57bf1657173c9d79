#include "train/bucket_plan.h"

#include <optional>

namespace lockstep::train {

namespace {

constexpr std::int64_t kLine = 64;  // bytes

std::int64_t element_bytes(at::ScalarType dtype) {
  return static_cast<std::int64_t>(c10::elementSize(dtype));
}

}  // namespace

std::int64_t line_elements(at::ScalarType dtype) { return kLine / element_bytes(dtype); }

std::int64_t BucketLayout::bytes() const { return elements * element_bytes(dtype); }

std::vector<BucketLayout> plan_buckets(const std::vector<BucketItem>& items,
                                       const BucketSizes& sizes) {
  std::vector<BucketLayout> buckets;
  std::optional<std::size_t> open;  // bucket that others may still join
  for (const BucketItem& item : items) {
    const std::int64_t width = element_bytes(item.dtype);
    const std::int64_t line = line_elements(item.dtype);
    const std::int64_t room = (item.elements + line - 1) / line * line;
    if (sizes.alone > 0 && item.elements * width >= sizes.alone) {
      buckets.push_back({item.dtype, item.elements, {{item.parameter, 0}}, true});
      continue;
    }
    const bool fits = open && buckets[*open].dtype == item.dtype &&
                      (sizes.limit == 0 || buckets[*open].bytes() + room * width <= sizes.limit);
    if (!fits) {
      open = buckets.size();
      buckets.emplace_back().dtype = item.dtype;
    }
    BucketLayout& bucket = buckets[*open];
    bucket.slots.push_back({item.parameter, bucket.elements});
    bucket.elements += room;
  }
  return buckets;
}

}  // namespace lockstep::train
