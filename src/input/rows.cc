#include "lockstep/detail/rows.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "lockstep/detail/stage_batch.h"
#include "lockstep/error.h"
#include "tensor/torch_text.h"

namespace lockstep {

bool TensorSpec::is_static() const noexcept {
  return std::none_of(shape.begin(), shape.end(), [](std::int64_t n) { return n < 0; });
}

std::string to_string(const TensorSpec& spec) {
  std::string text = c10::toString(spec.dtype);
  text += '[';
  for (std::size_t i = 0; i < spec.shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += spec.shape[i] < 0 ? "?" : std::to_string(spec.shape[i]);
  }
  return text + ']';
}

std::ostream& operator<<(std::ostream& out, const TensorSpec& spec) {
  return out << to_string(spec);
}

namespace detail {

namespace {

std::string text_of(const Tensor& tensor) { return to_string(spec_of({tensor}).front()); }

void require_same_count(const std::vector<Leaves>& elements) {
  for (const Leaves& element : elements) {
    if (element.size() != elements.front().size()) {
      throw DataError(fmt::format("elements of one batch have {} and {} tensors",
                                  elements.front().size(), element.size()),
                      Code::invalid_argument);
    }
  }
}

/// The k-th tensor of every element.
std::vector<Tensor> column(const std::vector<Leaves>& elements, std::size_t k) {
  std::vector<Tensor> tensors;
  tensors.reserve(elements.size());
  for (const Leaves& element : elements) tensors.push_back(element[k]);
  return tensors;
}

}  // namespace

void different_keys() {
  throw DataError(
      "batch: the maps of its elements have different keys, or the same keys in another order; "
      "give all elements the same, with map()",
      Code::invalid_argument);
}

Leaves stack_rows(const std::vector<Leaves>& elements) {
  if (elements.empty()) throw InvalidUsage("no tensors to make a batch of");
  require_same_count(elements);
  Leaves batch;
  for (std::size_t k = 0; k < elements.front().size(); ++k) {
    std::vector<Tensor> rows = column(elements, k);
    for (std::size_t i = 1; i < rows.size(); ++i) {
      if (rows[i].sizes() != rows[0].sizes() || rows[i].scalar_type() != rows[0].scalar_type()) {
        throw DataError(
            fmt::format("batch: tensor {} of its elements differs: {} in row 0, {} in row {}; make "
                        "them equal with map(), or use padded_batch()",
                        k, text_of(rows[0]), text_of(rows[i]), i),
            Code::invalid_argument);
      }
    }
    batch.push_back(at::stack(rows));
  }
  return batch;
}

Leaves stack_padded(const std::vector<Leaves>& elements,
                    const std::vector<std::vector<std::int64_t>>& shapes, double padding) {
  require_same_count(elements);
  Leaves batch;
  if (!shapes.empty() && shapes.size() != elements.front().size()) {
    throw InvalidUsage(fmt::format("padded_batch: {} shapes for elements of {} tensors",
                                   shapes.size(), elements.front().size()));
  }
  for (std::size_t k = 0; k < elements.front().size(); ++k) {
    const std::vector<Tensor> rows = column(elements, k);
    std::vector<std::int64_t> largest = rows[0].sizes().vec();
    for (const Tensor& row : rows) {
      if (row.dim() != rows[0].dim() || row.scalar_type() != rows[0].scalar_type()) {
        throw DataError(fmt::format("padded_batch: tensor {} is {} and {}: only lengths may differ",
                                    k, text_of(rows[0]), text_of(row)),
                        Code::invalid_argument);
      }
      for (std::size_t d = 0; d < largest.size(); ++d) {
        largest[d] = std::max(largest[d], row.size(static_cast<std::int64_t>(d)));
      }
    }
    if (!shapes.empty()) {
      const auto& wanted = shapes[k];
      bool fits = wanted.size() == largest.size();
      for (std::size_t d = 0; fits && d < wanted.size(); ++d) {
        if (wanted[d] < 0) continue;
        fits = largest[d] <= wanted[d];
        largest[d] = wanted[d];
      }
      if (!fits) {
        throw DataError(
            fmt::format("padded_batch: tensor {} does not fit into {}: an element is {}", k, wanted,
                        text_of(rows[0])),
            Code::invalid_argument);
      }
    }
    std::vector<std::int64_t> shape = largest;
    shape.insert(shape.begin(), static_cast<std::int64_t>(rows.size()));
    Tensor all = at::full(shape, padding, rows[0].options());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      Tensor place = all.select(0, static_cast<std::int64_t>(i));
      for (std::int64_t d = 0; d < rows[i].dim(); ++d) {
        place = place.narrow(d, 0, rows[i].size(d));
      }
      place.copy_(rows[i]);
    }
    batch.push_back(std::move(all));
  }
  return batch;
}

std::int64_t rows_of(const Leaves& batch, const char* who) {
  std::int64_t rows = kUnknownLength;
  for (const Tensor& tensor : batch) {
    if (tensor.dim() == 0) {
      throw InvalidUsage(fmt::format(
          "{} needs batches, but an element has a scalar; add batch() to the dataset", who));
    }
    if (rows == kUnknownLength) rows = tensor.size(0);
    if (tensor.size(0) != rows) {
      throw InvalidUsage(
          fmt::format("{}: tensors of one batch have {} and {} rows", who, rows, tensor.size(0)));
    }
  }
  return std::max<std::int64_t>(rows, 0);
}

bool all_have_rows(const Leaves& batch) noexcept {
  return std::all_of(batch.begin(), batch.end(), [](const Tensor& t) { return t.dim() > 0; });
}

Leaves slice_rows(const Leaves& batch, std::int64_t begin, std::int64_t end) {
  Leaves part;
  part.reserve(batch.size());
  for (const Tensor& tensor : batch) part.push_back(tensor.slice(0, begin, end));
  return part;
}

Leaves concatenate_rows(const std::vector<Leaves>& parts) {
  if (parts.size() == 1) return parts.front();
  require_same_count(parts);
  Leaves whole;
  for (std::size_t k = 0; k < parts.front().size(); ++k) whole.push_back(at::cat(column(parts, k)));
  return whole;
}

Leaves even_slice(const Leaves& batch, int k, int n) {
  Leaves part;
  part.reserve(batch.size());
  for (const Tensor& tensor : batch) {
    if (tensor.dim() == 0) rows_of(batch, "distribute");
    const std::int64_t rows = tensor.size(0);
    const auto first_row = [&](std::int64_t slice) {
      return slice * (rows / n) + std::min(slice, rows % n);
    };
    part.push_back(tensor.slice(0, first_row(k), first_row(k + 1)));
  }
  return part;
}

std::vector<std::int64_t> even_sizes(std::int64_t rows, std::size_t n) {
  const auto parts = static_cast<std::int64_t>(n);
  std::vector<std::int64_t> sizes(n, rows / parts);
  for (std::int64_t k = 0; k < rows % parts; ++k) ++sizes[static_cast<std::size_t>(k)];
  return sizes;
}

std::int64_t rebatched_count(std::int64_t rows, const std::vector<std::int64_t>& sizes,
                             std::size_t together, bool drop_remainder) {
  // Behind this many steps the sizes come in the same turn again.
  const std::size_t round = std::lcm(sizes.size(), together) / together;
  std::vector<std::int64_t> wanted(round, 0);  // rows by step
  for (std::size_t i = 0; i < round * together; ++i) {
    wanted[i / together] += sizes[i % sizes.size()];
  }
  const std::int64_t whole = std::accumulate(wanted.begin(), wanted.end(), std::int64_t{0});
  if (whole == 0) return 0;
  std::int64_t steps = rows / whole * static_cast<std::int64_t>(round);
  std::int64_t left = rows % whole;
  for (std::size_t step = 0; left > 0; ++step) {
    if (drop_remainder && left < wanted[step]) break;
    left -= wanted[step];
    ++steps;
  }
  return steps * static_cast<std::int64_t>(together);
}

Leaves select_row(const Leaves& batch, std::int64_t row) {
  Leaves element;
  element.reserve(batch.size());
  for (const Tensor& tensor : batch) element.push_back(tensor.select(0, row));
  return element;
}

ElementSpec spec_of(const Leaves& element) {
  ElementSpec spec;
  for (const Tensor& tensor : element) {
    spec.push_back({tensor.scalar_type(), tensor.sizes().vec()});
  }
  return spec;
}

ElementSpec batched(ElementSpec element, std::int64_t rows) {
  for (TensorSpec& tensor : element) tensor.shape.insert(tensor.shape.begin(), rows);
  return element;
}

ElementSpec with_rows(ElementSpec batch, std::int64_t rows) {
  for (TensorSpec& tensor : batch) {
    if (!tensor.shape.empty()) tensor.shape.front() = rows;
  }
  return batch;
}

ElementSpec row_of(ElementSpec batch) {
  for (TensorSpec& tensor : batch) {
    if (!tensor.shape.empty()) tensor.shape.erase(tensor.shape.begin());
  }
  return batch;
}

ElementSpec merged(const ElementSpec& a, const ElementSpec& b) {
  ElementSpec both = a;
  for (std::size_t k = 0; k < both.size() && k < b.size(); ++k) {
    auto& shape = both[k].shape;
    for (std::size_t d = 0; d < shape.size() && d < b[k].shape.size(); ++d) {
      if (shape[d] != b[k].shape[d]) shape[d] = kUnknownLength;
    }
  }
  return both;
}

bool is_static(const ElementSpec& spec) {
  return std::all_of(spec.begin(), spec.end(), [](const TensorSpec& t) { return t.is_static(); });
}

}  // namespace detail
}  // namespace lockstep
