// Which gradients travel together. A pure function: every worker that gives the same list gets the
// same buckets.
//
// Gradients are taken in the order given (that of their arrival in backward) and put into the open
// bucket until it would grow past the limit, or the element type changes. Each begins at a whole
// cache line.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/tensor.h"

namespace lockstep::train {

struct BucketItem {
  int parameter = 0;
  at::ScalarType dtype = at::kFloat;
  std::int64_t elements = 0;
};

struct BucketSlot {
  int parameter = 0;
  std::int64_t begin = 0;  // in elements
};

struct BucketLayout {
  at::ScalarType dtype = at::kFloat;
  std::int64_t elements = 0;  // with the gaps between gradients
  std::vector<BucketSlot> slots;

  [[nodiscard]] std::int64_t bytes() const;
};

/// `limit` in bytes; a larger gradient has a bucket to itself. 0: no limit.
std::vector<BucketLayout> plan_buckets(const std::vector<BucketItem>& items, std::int64_t limit);

}  // namespace lockstep::train
