#include "train/bucket_plan.h"

namespace lockstep::train {

namespace {

constexpr std::int64_t kLine = 64;  // bytes

std::int64_t element_bytes(at::ScalarType dtype) {
  return static_cast<std::int64_t>(c10::elementSize(dtype));
}

}  // namespace

std::int64_t BucketLayout::bytes() const { return elements * element_bytes(dtype); }

std::vector<BucketLayout> plan_buckets(const std::vector<BucketItem>& items, std::int64_t limit) {
  std::vector<BucketLayout> buckets;
  for (const BucketItem& item : items) {
    const std::int64_t line = kLine / element_bytes(item.dtype);
    const std::int64_t room = (item.elements + line - 1) / line * line;
    const bool fits =
        !buckets.empty() && buckets.back().dtype == item.dtype &&
        (limit == 0 || buckets.back().bytes() + room * element_bytes(item.dtype) <= limit);
    if (!fits) buckets.push_back({item.dtype, 0, {}});
    buckets.back().slots.push_back({item.parameter, buckets.back().elements});
    buckets.back().elements += room;
  }
  return buckets;
}

}  // namespace lockstep::train
