// Helpers of the session tests: inputs that make the order of additions visible, and the expected
// result computed without any of the engine.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "kernel/reduce.h"
#include "kernel/round.h"
#include "lockstep/coll.h"

namespace lockstep::coll {

/// Raw elements of any type.
struct Data {
  DType dtype = DType::float32;
  std::size_t count = 0;
  std::vector<std::byte> bytes;

  Data(DType type, std::size_t elements)
      : dtype(type), count(elements), bytes(elements * size_of(type)) {}
  [[nodiscard]] Buffer buffer() { return {dtype, bytes.data(), count}; }
  friend bool operator==(const Data& a, const Data& b) {
    return a.dtype == b.dtype && a.bytes == b.bytes;
  }
};

/// Values whose sums depend on the order: magnitudes spread over many powers of two.
inline double awkward(int replica, std::size_t i) {
  const auto mixed = (static_cast<std::uint64_t>(replica) * 7919 + i * 104729 + 12345) % 1000;
  const double scale = static_cast<double>(1ULL << (mixed % 20));
  return (static_cast<double>(mixed) - 499.5) / 3.0 * scale;
}

inline Data make_input(DType dtype, std::size_t count, int replica) {
  Data data(dtype, count);
  for (std::size_t i = 0; i < count; ++i) {
    const double value = awkward(replica, i);
    const auto integer = static_cast<std::int64_t>(value);
    std::byte* at = data.bytes.data() + i * size_of(dtype);
    const auto put = [at](auto x) { std::memcpy(at, &x, sizeof(x)); };
    switch (dtype) {
      case DType::float64:
        put(value);
        break;
      case DType::float32:
        put(static_cast<float>(value));
        break;
      case DType::float16:
        put(kernel::to_float16(static_cast<float>(value / 65536)));
        break;
      case DType::bfloat16:
        put(kernel::to_bfloat16(static_cast<float>(value)));
        break;
      case DType::int8:
        put(static_cast<std::int8_t>(integer));
        break;
      case DType::int16:
        put(static_cast<std::int16_t>(integer));
        break;
      case DType::int32:
        put(static_cast<std::int32_t>(integer));
        break;
      case DType::int64:
        put(integer);
        break;
      case DType::uint8:
        put(static_cast<std::uint8_t>(integer));
        break;
      case DType::boolean:
        put(static_cast<std::uint8_t>(integer & 1));
        break;
      case DType::complex64: {
        const float parts[] = {static_cast<float>(value), static_cast<float>(-value)};
        std::memcpy(at, parts, sizeof(parts));
        break;
      }
      case DType::complex128: {
        const double parts[] = {value, -value};
        std::memcpy(at, parts, sizeof(parts));
        break;
      }
    }
  }
  return data;
}

/// The fixed tree over all replicas, by the kernel alone.
inline Data expected_reduction(Op op, DType dtype, std::size_t count, int replicas) {
  std::vector<Data> inputs;
  for (int replica = 0; replica < replicas; ++replica) {
    inputs.push_back(make_input(dtype, count, replica));
  }
  std::vector<kernel::Input> sources;
  for (const Data& input : inputs) sources.push_back({input.bytes.data()});
  Data result(dtype, count);
  const kernel::Target target{result.bytes.data()};
  const auto merges = kernel::tree_merges(replicas);
  kernel::reduce({.op = op,
                  .dtype = dtype,
                  .inputs = sources,
                  .merges = merges,
                  .targets = {&target, 1},
                  .count = count,
                  .weights = {},
                  .divisor = op == Op::mean ? static_cast<double>(replicas) : 1});
  return result;
}

inline const std::vector<DType> kAllTypes = {DType::float64,  DType::float32,   DType::float16,
                                             DType::bfloat16, DType::int8,      DType::int16,
                                             DType::int32,    DType::int64,     DType::uint8,
                                             DType::boolean,  DType::complex64, DType::complex128};

/// Runs fn on every rank and returns what each threw (null if nothing).
inline std::vector<std::exception_ptr> outcomes(int ranks, const std::function<void(Session&)>& fn,
                                                const SessionOptions& options = {}) {
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(ranks));
  run_ranks(
      ranks,
      [&](Session& group) {
        std::exception_ptr& mine =
            thrown[static_cast<std::size_t>(group.rank())];  // fn may move group
        try {
          fn(group);
        } catch (...) {
          mine = std::current_exception();
        }
      },
      options);
  return thrown;
}

template <class E>
const E* as(const std::exception_ptr& thrown) {
  static thread_local std::exception_ptr kept;
  kept = thrown;
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const E& e) {
    return &e;
  } catch (...) {
  }
  return nullptr;
}

}  // namespace lockstep::coll
