// Reductions of every type and op, against the fixed tree computed without the engine: equal for
// integers, min, max and two ranks, within rounding for sums of more, whose order is MPI's.
#include <cmath>
#include <limits>

#include "tests/engines/mpi/group.h"

namespace lockstep::coll {
namespace {

/// The floating numbers of an element: one, or two of a complex one.
std::vector<double> numbers(const Data& data, std::size_t i) {
  const std::byte* at = data.bytes.data() + i * size_of(data.dtype);
  const auto get = [at](auto value, std::size_t index = 0) {
    std::memcpy(&value, at + index * sizeof(value), sizeof(value));
    return value;
  };
  switch (data.dtype) {
    case DType::float64:
      return {get(double{})};
    case DType::float32:
      return {get(float{})};
    case DType::float16:
      return {kernel::to_float(get(Float16{}))};
    case DType::bfloat16:
      return {kernel::to_float(get(BFloat16{}))};
    case DType::complex64:
      return {get(float{}), get(float{}, 1)};
    default:
      return {get(double{}), get(double{}, 1)};
  }
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::float64:
    case DType::complex128:
      return std::numeric_limits<double>::epsilon();
    case DType::float32:
    case DType::complex64:
      return std::numeric_limits<float>::epsilon();
    case DType::float16:
      return 0x1p-10;
    default:
      return 0x1p-7;
  }
}

bool floating(DType dtype) { return !is_integer(dtype) && dtype != DType::boolean; }

void expect_reduced(const Data& result, Op op, int replicas, std::size_t first = 0,
                    std::size_t whole = 0) {
  const DType dtype = result.dtype;
  const std::size_t count = whole == 0 ? result.count : whole;
  const Data tree = expected_reduction(op, dtype, count, replicas);
  Data expected(dtype, result.count);
  std::memcpy(expected.bytes.data(), tree.bytes.data() + first * size_of(dtype),
              expected.bytes.size());
  const bool ordered = floating(dtype) && op != Op::min && op != Op::max && replicas > 2;
  if (!ordered) {
    EXPECT_TRUE(result == expected) << to_string(op) << ' ' << to_string(dtype);
    return;
  }
  std::vector<Data> inputs;
  for (int replica = 0; replica < replicas; ++replica) {
    inputs.push_back(make_input(dtype, count, replica));
  }
  const double sum_error = replicas * epsilon(accumulator_of(dtype));
  for (std::size_t i = 0; i < result.count; ++i) {
    const auto got = numbers(result, i);
    const auto wanted = numbers(expected, i);
    for (std::size_t part = 0; part < got.size(); ++part) {
      double magnitude = std::abs(wanted[part]);
      double allowed = (sum_error + epsilon(dtype)) * magnitude;
      if (op != Op::product) {
        for (const Data& input : inputs) {
          allowed += sum_error * std::abs(numbers(input, first + i)[part]);
        }
      }
      if (got[part] == wanted[part]) continue;
      ASSERT_LE(std::abs(got[part] - wanted[part]), allowed)
          << to_string(op) << ' ' << to_string(dtype) << " element " << i << " part " << part;
    }
  }
}

template <class Function>
void for_every_type_and_op(Function function) {
  for (const DType dtype : kAllTypes) {
    for (int i = 0; i < kOpCount; ++i) {
      if (kernel::check_supported(static_cast<Op>(i), dtype).ok())
        function(dtype, static_cast<Op>(i));
    }
  }
}

TEST(MpiReductions, AllReduceOfEveryTypeAndOp) {
  Session group = make_group();
  for_every_type_and_op([&](DType dtype, Op op) {
    for (const std::size_t count : {0, 1, 7, 1000, 30'011}) {
      Data mine = make_input(dtype, count, group.rank());
      group.all_reduce(op, mine.buffer());
      expect_reduced(mine, op, group.size());
    }
    Data input = make_input(dtype, 100, group.rank());
    const Data before = input;
    Data output(dtype, 100);
    group.all_reduce(op, ConstBuffer(input.buffer()), output.buffer());
    expect_reduced(output, op, group.size());
    EXPECT_TRUE(input == before);
  });
}

TEST(MpiReductions, ReduceGivesTheRootAlone) {
  Session group = make_group();
  for_every_type_and_op([&](DType dtype, Op op) {
    for (int root = 0; root < group.size(); ++root) {
      Data input = make_input(dtype, 333, group.rank());
      const Data before = input;
      Data output(dtype, group.rank() == root ? 333 : 0);
      group.reduce(op, ConstBuffer(input.buffer()), output.buffer(), Root{root});
      if (group.rank() == root) expect_reduced(output, op, group.size());
      EXPECT_TRUE(input == before);
      // In place at the root.
      group.reduce(op, ConstBuffer(input.buffer()), input.buffer(), Root{root});
      if (group.rank() == root) expect_reduced(input, op, group.size());
    }
  });
}

TEST(MpiReductions, ReduceScatterGivesEachRankItsPart) {
  Session group = make_group();
  const auto n = static_cast<std::size_t>(group.size());
  const auto rank = static_cast<std::size_t>(group.rank());
  for_every_type_and_op([&](DType dtype, Op op) {
    Data input = make_input(dtype, 37 * n, group.rank());
    Data output(dtype, 37);
    group.reduce_scatter(op, ConstBuffer(input.buffer()), output.buffer());
    expect_reduced(output, op, group.size(), 37 * rank, 37 * n);

    std::vector<std::uint64_t> counts;  // 0, 5, 10, ...
    for (std::size_t r = 0; r < n; ++r) counts.push_back(5 * r);
    const std::size_t whole = 5 * n * (n - 1) / 2;
    Data ragged = make_input(dtype, whole, group.rank());
    Data part(dtype, 5 * rank);
    group.reduce_scatter(op, ConstBuffer(ragged.buffer()), part.buffer(), counts);
    if (part.count > 0) expect_reduced(part, op, group.size(), 5 * rank * (rank - 1) / 2, whole);
  });
}

TEST(MpiReductions, SeveralReplicasPerRank) {
  SessionOptions options = impatient();
  options.replicas = 3;
  Session group = make_group(options);
  const int replicas = 3 * group.size();
  EXPECT_EQ(group.replicas(), replicas);
  EXPECT_EQ(group.first_replica(), 3 * group.rank());
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::int32, DType::complex64}) {
    std::vector<Data> inputs;
    std::vector<ConstBuffer> views;
    for (int i = 0; i < 3; ++i) {
      inputs.push_back(make_input(dtype, 3000, group.first_replica() + i));
    }
    for (Data& input : inputs) views.emplace_back(input.buffer());
    Data output(dtype, 3000);
    const Op op = dtype == DType::int32 ? Op::sum : Op::mean;
    group.all_reduce(op, std::span<const ConstBuffer>(views), output.buffer());
    expect_reduced(output, op, replicas);
  }
}

TEST(MpiReductions, MinAndMaxKeepNaN) {
  Session group = make_group();
  for (int bad = 0; bad < group.size(); ++bad) {
    for (const Op op : {Op::min, Op::max}) {
      const double nan = std::numeric_limits<double>::quiet_NaN();
      std::vector<double> x(9, group.rank() == bad ? nan : group.rank());
      std::vector<float> y(9, static_cast<float>(x[0]));
      group.all_reduce(op, std::span(x));
      group.all_reduce(op, std::span(y));
      EXPECT_TRUE(std::isnan(x[8]));
      EXPECT_TRUE(std::isnan(y[8]));
    }
  }
}

TEST(MpiReductions, SixteenBitTypesAreRoundedOnce) {
  Session group = make_group();
  // In bfloat16 each 1 would be lost beside 256; in float32 none is.
  const float mine = group.rank() == 0 ? 256.0F : 1.0F;
  std::vector<BFloat16> x(5, kernel::to_bfloat16(mine));
  group.all_reduce(Op::sum, std::span(x));
  const auto others = static_cast<float>(group.size() - 1);
  EXPECT_EQ(x[4], kernel::to_bfloat16(256.0F + others));
}

TEST(MpiBatch, ListsOfTensorsAreReducedWhereTheyLie) {
  Session group = make_group();
  std::vector<Data> tensors;
  for (const std::size_t size : {1, 0, 17, 40'000, 3, 129}) {
    tensors.push_back(make_input(DType::float32, size, group.rank()));
  }
  Data half = make_input(DType::bfloat16, 500, group.rank());
  Data other_half = make_input(DType::bfloat16, 3, group.rank());
  auto weights = ramp(group.rank(), 77);
  Batch batch = group.batch();
  for (Data& tensor : tensors) batch.all_reduce(Op::mean, tensor.buffer());
  batch.all_reduce(Op::sum, half.buffer());
  batch.all_reduce(Op::sum, other_half.buffer());
  batch.broadcast(std::span(weights), Root{group.size() - 1});
  batch.run();
  for (const Data& tensor : tensors) expect_reduced(tensor, Op::mean, group.size());
  expect_reduced(half, Op::sum, group.size());
  expect_reduced(other_half, Op::sum, group.size());
  EXPECT_EQ(weights, ramp(group.size() - 1, 77));
  EXPECT_NE(group.history().find("     3 done"), std::string::npos) << group.history();
}

}  // namespace
}  // namespace lockstep::coll
