#include "lockstep/dataset.h"

#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <charconv>

namespace lockstep {

namespace detail {

std::uint64_t Randomness::below(std::uint64_t bound) noexcept {
  state_ = mix(state_, 1);
  // The high half of a product: as even as 64 bits allow, and without a division.
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(state_) * bound) >> 64);
}

std::int64_t rows_to_slice(const Leaves& leaves) {
  if (leaves.empty()) throw InvalidUsage("from_tensor_slices: no tensors to slice");
  for (const Tensor& tensor : leaves) {
    if (tensor.dim() == 0) {
      throw InvalidUsage("from_tensor_slices: a scalar has no rows; use from_tensors()");
    }
  }
  return rows_of(leaves, "from_tensor_slices");
}

Tensor range_element(std::int64_t value) { return at::scalar_tensor(value, at::kLong); }

void wrong_cardinality(std::int64_t expected, std::int64_t found, bool more) {
  throw DataError(fmt::format("assert_cardinality: {} elements were promised, but there are {}{}",
                              expected == kInfinite ? "infinitely many" : std::to_string(expected),
                              more ? "at least " : "", found));
}

void require_at_least(const char* method, const char* what, std::int64_t value,
                      std::int64_t least) {
  if (value < least) {
    throw InvalidUsage(
        fmt::format("{}: {} is {}; at least {} is needed", method, what, value, least));
  }
}

void require_shard(std::int64_t count, std::int64_t index) {
  if (count < 1 || index < 0 || index >= count) {
    throw InvalidUsage(fmt::format("shard({}, {}): the index must be in 0..{}", count, index,
                                   count < 1 ? 0 : count - 1));
  }
}

void require_same_pipeline(const DatasetPosition& position, std::uint64_t fingerprint,
                           const std::string& explanation) {
  if (position.fingerprint != fingerprint) {
    throw InvalidUsage(
        fmt::format("the position is of another dataset; this one is\n{}", explanation));
  }
}

void position_beyond_end(const DatasetPosition& position, std::uint64_t found) {
  throw DataError(
      fmt::format("the position is behind element {}, but there are only {}: has the "
                  "data changed?",
                  position.delivered, found));
}

}  // namespace detail

std::string DatasetPosition::to_string() const {
  return fmt::format("pass {} delivered {} of {:016x}{}", pass, delivered, fingerprint,
                     errors == 0 ? "" : fmt::format(" errors {}", errors));
}

DatasetPosition DatasetPosition::parse(const std::string& text) {
  unsigned long long pass = 0;
  unsigned long long delivered = 0;
  unsigned long long fingerprint = 0;
  unsigned long long errors = 0;
  int read = 0;
  int whole = 0;
  const int found = std::sscanf(text.c_str(), "pass %llu delivered %llu of %16llx%n errors %llu%n",
                                &pass, &delivered, &fingerprint, &read, &errors, &whole);
  if (found < 3 || static_cast<std::size_t>(found == 4 ? whole : read) != text.size()) {
    throw ConfigError(fmt::format("\"{}\" is no position of a dataset", text));
  }
  return {pass, delivered, fingerprint, errors};
}

namespace data {

Dataset<Tensor> range(std::int64_t begin, std::int64_t end, std::int64_t step) {
  if (step == 0) throw InvalidUsage("range: a step of 0 never ends");
  const std::int64_t span = step > 0 ? end - begin : begin - end;
  const std::int64_t width = step > 0 ? step : -step;
  const std::int64_t count = span > 0 ? (span + width - 1) / width : 0;
  return Dataset<Tensor>(std::make_shared<detail::IndexedStage<Tensor>>(
      count, [begin, step](std::int64_t i) { return detail::range_element(begin + i * step); },
      ElementSpec{{at::kLong, {}}}, fmt::format("range({}, {}, {})", begin, end, step)));
}

}  // namespace data
}  // namespace lockstep
