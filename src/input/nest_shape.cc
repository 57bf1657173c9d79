#include "lockstep/detail/nest_shape.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "lockstep/error.h"

namespace lockstep::detail {

namespace {

[[noreturn]] void wrong_shape() {
  throw InternalError("what another worker says of its elements cannot be read");
}

}  // namespace

void ShapeWriter::text(const std::string& value) {
  number(static_cast<std::int64_t>(value.size()));
  const std::size_t begin = words_.size();
  words_.resize(begin + (value.size() + sizeof(std::int64_t) - 1) / sizeof(std::int64_t), 0);
  if (!value.empty()) std::memcpy(&words_[begin], value.data(), value.size());
}

void ShapeWriter::tensor(const Tensor& value) {
  number(static_cast<std::int64_t>(value.scalar_type()));
  number(value.dim());
  for (const std::int64_t length : value.sizes()) number(length);
}

std::int64_t ShapeReader::number() {
  if (words_.empty()) wrong_shape();
  const std::int64_t value = words_.front();
  words_ = words_.subspan(1);
  return value;
}

std::size_t ShapeReader::length() {
  const std::int64_t value = number();
  if (value < 0 || static_cast<std::size_t>(value) > words_.size()) wrong_shape();
  return static_cast<std::size_t>(value);
}

std::string ShapeReader::text() {
  const std::int64_t bytes = number();
  if (bytes < 0 || static_cast<std::size_t>(bytes) > words_.size_bytes()) wrong_shape();
  std::string value(static_cast<std::size_t>(bytes), '\0');
  if (bytes > 0) std::memcpy(value.data(), words_.data(), value.size());
  words_ = words_.subspan((value.size() + sizeof(std::int64_t) - 1) / sizeof(std::int64_t));
  return value;
}

Tensor ShapeReader::tensor() {
  const auto type = static_cast<at::ScalarType>(number());
  const std::size_t dimensions = length();
  std::vector<std::int64_t> lengths;
  for (std::size_t d = 0; d < dimensions; ++d) lengths.push_back(number());
  return at::empty(lengths, type);
}

}  // namespace lockstep::detail
