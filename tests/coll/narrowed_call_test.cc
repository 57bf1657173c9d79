// Sums of float32 that travel in 16 bits, against a reference of one float at a time.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/coll/fixtures.h"

namespace lockstep::coll {
namespace {

using testing::HasSubstr;

using Values = std::vector<float>;

/// What is left of a value that has travelled.
float rounded(WireType wire, float value) {
  return wire == WireType::bf16 ? kernel::to_float(kernel::to_bfloat16(value))
                                : kernel::to_float(kernel::to_float16(value));
}

/// Small enough for both types, and not exact in either.
Values input_of(int replica, std::size_t count) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(awkward(replica, i) / 65536);
  }
  return values;
}

/// The fixed tree over [first, last): it splits at the largest power of two below the size.
float tree_sum(const Values& leaves, std::size_t first, std::size_t last) {
  if (last - first == 1) return leaves[first];
  const std::size_t left = std::bit_floor(last - first - 1);
  return tree_sum(leaves, first, first + left) + tree_sum(leaves, first + left, last);
}

Values expected(Op op, WireType wire, int replicas, std::size_t count) {
  std::vector<Values> inputs;
  for (int replica = 0; replica < replicas; ++replica) inputs.push_back(input_of(replica, count));
  Values result(count);
  Values leaves(inputs.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t replica = 0; replica < inputs.size(); ++replica) {
      leaves[replica] = rounded(wire, inputs[replica][i]);
    }
    float sum = tree_sum(leaves, 0, leaves.size());
    if (op == Op::mean) sum /= static_cast<float>(replicas);
    result[i] = rounded(wire, sum);
  }
  return result;
}

/// By bits: zeros have signs.
bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

constexpr WireType kNarrow[] = {WireType::bf16, WireType::f16};

class NarrowedSizes : public testing::TestWithParam<int> {};

TEST_P(NarrowedSizes, SumsAndMeansAreRoundedOnceOnTheWayAndOnceAtTheEnd) {
  run_ranks(GetParam(), [](Session& group) {
    for (const WireType wire : kNarrow) {
      for (const Op op : {Op::sum, Op::mean}) {
        for (const std::size_t count : {0, 1, 5, 257, 5000, 70'001}) {
          const Values want = expected(op, wire, group.size(), count);
          const Values input = input_of(group.rank(), count);
          Values in_place = input;
          group.all_reduce(op, std::span(in_place), {.wire = wire});
          EXPECT_TRUE(same_bits(in_place, want)) << to_string(op) << " " << count;
          Values given = input;
          Values output(count, -1);
          group.all_reduce(op, std::span(given), std::span(output), {.wire = wire});
          EXPECT_TRUE(same_bits(output, want)) << to_string(op) << " " << count;
          EXPECT_TRUE(same_bits(given, input));
          Values later = input;
          Work work = group.start_all_reduce(op, std::span(later), {.wire = wire});
          work.wait();
          EXPECT_TRUE(same_bits(later, want)) << to_string(op) << " " << count;
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, NarrowedSizes, testing::Values(1, 2, 3, 4));

TEST(NarrowedCall, EveryAlgorithmOfMessagesGivesTheSameBits) {
  for (const char* name : {"direct", "doubling", "halving", "tree"}) {
    SessionOptions options;
    options.algorithms = std::string("all_reduce=") + name;
    run_ranks(
        4,
        [&](Session& group) {
          Values values = input_of(group.rank(), 9000);
          group.all_reduce(Op::sum, std::span(values), {.wire = WireType::bf16});
          EXPECT_TRUE(same_bits(values, expected(Op::sum, WireType::bf16, 4, 9000))) << name;
        },
        options);
  }
}

TEST(NarrowedCall, ReplicasOfOneRankAreRoundedEach) {
  run_ranks(2,
            [](Session& group) {
              constexpr std::size_t kCount = 3001;
              const Values first = input_of(2 * group.rank(), kCount);
              const Values second = input_of(2 * group.rank() + 1, kCount);
              const ConstBuffer both[] = {std::span(first), std::span(second)};
              Values output(kCount);
              group.all_reduce(Op::mean, std::span<const ConstBuffer>(both), std::span(output),
                               {.wire = WireType::f16});
              EXPECT_TRUE(same_bits(output, expected(Op::mean, WireType::f16, 4, kCount)));
            },
            {.replicas = 2});
}

TEST(NarrowedCall, OfABatch) {
  run_ranks(3, [](Session& group) {
    const Values all = input_of(group.rank(), 5000);
    Values a(all.begin(), all.begin() + 13);
    Values b(all.begin() + 13, all.begin() + 4013);
    Values c(all.begin() + 4013, all.end());
    Batch batch = group.batch();
    for (Values* part : {&a, &b, &c}) batch.all_reduce(Op::sum, std::span(*part));
    batch.run({.wire = WireType::bf16});
    Values result = a;
    result.insert(result.end(), b.begin(), b.end());
    result.insert(result.end(), c.begin(), c.end());
    EXPECT_TRUE(same_bits(result, expected(Op::sum, WireType::bf16, 3, 5000)));
  });
}

/// The input is what the operation before left there.
TEST(NarrowedCall, IsRoundedInItsTurn) {
  run_ranks(2, [](Session& group) {
    Values values(20'000, group.rank() == 0 ? 3.0F : 100.0F);
    Work sent = group.start_broadcast(std::span(values), Root{0});
    Work added = group.start_all_reduce(Op::sum, std::span(values), {.wire = WireType::bf16});
    added.wait();
    sent.wait();
    EXPECT_TRUE(same_bits(values, Values(20'000, 6.0F)));
  });
}

/// Small calls that repeat the one before take a short way; these are different calls.
TEST(NarrowedCall, IsNotRepeatedAsASumOfTheRoundType) {
  run_ranks(2, [](Session& group) {
    Values wide(64, 1.5F);
    for (int i = 0; i < 2; ++i) {
      group.all_reduce(Op::sum, std::span(wide), {.wire = WireType::bf16});
    }
    EXPECT_TRUE(same_bits(wide, Values(64, 6.0F)));
    std::vector<BFloat16> narrow(64, kernel::to_bfloat16(1.0F));
    group.all_reduce(Op::sum, std::span(narrow));
    EXPECT_EQ(kernel::to_float(narrow[63]), 2.0F);
    EXPECT_THAT(group.history(), HasSubstr("all_reduce sum float32[64] as bfloat16"));
    EXPECT_THAT(group.history(), HasSubstr("all_reduce sum bfloat16[64]"));
  });
}

TEST(NarrowedCall, KeepsWhatIsNoOrdinaryNumber) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  run_ranks(1, [](Session& group) {
    for (const WireType wire : kNarrow) {
      const Values input = {0.0F, -0.0F, kInfinity, -kInfinity, 1e-6F, -1e30F, 65519.0F, 65520.0F};
      Values values = input;
      values.push_back(std::numeric_limits<float>::quiet_NaN());
      group.all_reduce(Op::sum, std::span(values), {.wire = wire});
      for (std::size_t i = 0; i < input.size(); ++i) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]),
                  std::bit_cast<std::uint32_t>(rounded(wire, input[i])))
            << input[i];
      }
      EXPECT_TRUE(std::isnan(values.back()));
    }
  });
}

}  // namespace
}  // namespace lockstep::coll
