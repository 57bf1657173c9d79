// Rows: elements and batches as lists of tensors, whose first dimension counts rows.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/element_spec.h"

namespace lockstep::detail {

using Leaves = std::vector<Tensor>;

/// One batch of these elements, each a row; DataError naming the tensor if their shapes differ.
Leaves stack_rows(const std::vector<Leaves>& elements);
/// The same with every element made as large as the largest: `padding` fills the rest. Lengths of
/// `shapes` (one a tensor, or none at all) that are not kUnknownLength are asked for exactly.
Leaves stack_padded(const std::vector<Leaves>& elements,
                    const std::vector<std::vector<std::int64_t>>& shapes, double padding);

/// Rows of a batch; InvalidUsage if the tensors disagree, or if one is a scalar (`who` needs rows).
std::int64_t rows_of(const Leaves& batch, const char* who);
bool all_have_rows(const Leaves& batch) noexcept;
Leaves slice_rows(const Leaves& batch, std::int64_t begin, std::int64_t end);
Leaves concatenate_rows(const std::vector<Leaves>& parts);
/// Slice k of n of every tensor by itself: sizes differ by at most one, the first are the larger.
Leaves even_slice(const Leaves& batch, int k, int n);
Leaves select_row(const Leaves& batch, std::int64_t row);

/// Sizes of n parts of so many rows: they differ by at most one, the first are the larger.
std::vector<std::int64_t> even_sizes(std::int64_t rows, std::size_t n);
/// Batches that so many rows give when they are cut into these sizes, over and over, `together` of
/// them a step. Steps of no rows behind the last row do not count.
std::int64_t rebatched_count(std::int64_t rows, const std::vector<std::int64_t>& sizes,
                             std::size_t together, bool drop_remainder);

ElementSpec spec_of(const Leaves& element);
/// With a dimension in front.
ElementSpec batched(ElementSpec element, std::int64_t rows);
/// With the first dimension replaced.
ElementSpec with_rows(ElementSpec batch, std::int64_t rows);
/// Without the first dimension.
ElementSpec row_of(ElementSpec batch);
/// What elements of both look like; lengths that differ are unknown.
ElementSpec merged(const ElementSpec& a, const ElementSpec& b);
bool is_static(const ElementSpec& spec);

}  // namespace lockstep::detail
