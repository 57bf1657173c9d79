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
/// Slice k of n of every tensor by itself: ceil(rows / n) rows, fewer or none at the end.
Leaves even_slice(const Leaves& batch, int k, int n);
Leaves select_row(const Leaves& batch, std::int64_t row);

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
