// Which gradients travel together. A pure function: every worker that gives the same list gets the
// same buckets.
//
// Gradients are taken in the order given (that of their arrival in backward) and put into the open
// bucket until it would grow past the limit, or the element type changes. Each begins at a whole
// cache line. Large ones have a bucket to themselves.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/tensor.h"

namespace lockstep::train {

/// Elements of a cache line.
std::int64_t line_elements(at::ScalarType dtype);

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
  bool alone = false;  // one gradient, without a gap, that nobody was to join

  [[nodiscard]] std::int64_t bytes() const;
};

struct BucketSizes {
  std::int64_t limit = 0;  // bytes of a bucket; 0: none
  std::int64_t alone = 0;  // bytes from which on a gradient travels alone; 0: only above the limit
};

std::vector<BucketLayout> plan_buckets(const std::vector<BucketItem>& items,
                                       const BucketSizes& sizes);

}  // namespace lockstep::train
