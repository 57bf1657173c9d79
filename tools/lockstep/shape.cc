#include "shape.h"

#include <algorithm>

namespace lockstep::tool {
namespace {

using plan::Kind;

bool has_parts(Kind kind) noexcept {
  return kind == Kind::all_gather || kind == Kind::gather || kind == Kind::reduce_scatter ||
         kind == Kind::scatter || kind == Kind::all_to_all;
}

}  // namespace

Shape shape_of(Kind kind, std::uint64_t bytes, DType dtype, int ranks) {
  if (kind == Kind::barrier) return {};
  const std::uint64_t parts = has_parts(kind) ? static_cast<std::uint64_t>(ranks) : 1;
  const std::uint64_t width = size_of(dtype);
  Shape shape;
  shape.count = bytes / width / parts;
  if (bytes > 0) shape.count = std::max<std::uint64_t>(shape.count, 1);
  const std::uint64_t whole = shape.count * parts;
  shape.input = kind == Kind::all_gather || kind == Kind::gather ? shape.count : whole;
  shape.output = kind == Kind::reduce_scatter || kind == Kind::scatter ? shape.count : whole;
  shape.bytes = whole * width;
  return shape;
}

plan::Request request_of(Kind kind, const Shape& shape, DType dtype, int ranks) {
  plan::Request request;
  request.kind = kind;
  request.count = shape.count;
  request.counts.assign(static_cast<std::size_t>(ranks), shape.count);
  request.accumulator = reduces(kind) && accumulator_of(dtype) != dtype ? plan::Accumulator::wide
                                                                        : plan::Accumulator::same;
  request.chunk = plan::kChunkBytes / size_of(dtype);
  return request;
}

bool reduces(Kind kind) noexcept {
  return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
}

bool has_root(Kind kind) noexcept {
  return kind == Kind::reduce || kind == Kind::broadcast || kind == Kind::gather ||
         kind == Kind::scatter;
}

bool has_in_place(Kind kind) noexcept {
  return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::broadcast;
}

bool has_out_of_place(Kind kind) noexcept { return kind != Kind::broadcast; }

double bus_factor(Kind kind, int ranks) noexcept {
  const auto n = static_cast<double>(ranks);
  if (kind == Kind::all_reduce) return 2 * (n - 1) / n;
  return has_parts(kind) ? (n - 1) / n : 1;
}

}  // namespace lockstep::tool
