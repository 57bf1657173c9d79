// Which memory travels together in an all-reduce. A pack lists pieces of tensors; nothing is moved
// to form one. Tensors of different dtypes never share a pack.
//
//   split_evenly({{at::kFloat, 7}, {at::kFloat, 3}}, 2)   // {0: [0, 5)}, {0: [5, 7), 1: [0, 3)}
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

namespace lockstep::detail {

/// A tensor, as far as packing is concerned.
struct PackItem {
  at::ScalarType dtype;
  std::int64_t elements;

  [[nodiscard]] std::int64_t bytes() const noexcept {
    return elements * static_cast<std::int64_t>(c10::elementSize(dtype));
  }
};

struct Piece {
  std::size_t item;
  std::int64_t begin;  // elements
  std::int64_t end;

  friend bool operator==(const Piece&, const Piece&) = default;
};
using Pack = std::vector<Piece>;

/// All items of a dtype end to end, cut into `packs` packs of equal length; the last takes the
/// remainder. Too few elements leave packs empty. Dtypes in the order they appear.
std::vector<Pack> split_evenly(const std::vector<PackItem>& items, int packs);

/// Neighbours of one dtype with at most `max_bytes` each, at most `max_group` together; then the
/// others, each alone. Two make a group.
std::vector<Pack> group_small(const std::vector<PackItem>& items, std::int64_t max_bytes,
                              int max_group);

std::vector<Pack> one_each(const std::vector<PackItem>& items);

/// Items in their order, a new pack once one is larger than `bytes_per_pack`; 0: one pack for each
/// dtype.
std::vector<Pack> fill(const std::vector<PackItem>& items, std::int64_t bytes_per_pack);

}  // namespace lockstep::detail
