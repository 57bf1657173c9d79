// Reductions of every kind against the element-by-element reference, on every instruction set, with
// heap buffers of the exact size so that a sanitizer sees the first byte too many.
#include "kernel/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

#include "tests/kernel/reference.h"
#include "tests/kernel/targets.h"

namespace lockstep::kernel {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Bytes = std::vector<std::uint8_t>;
using Random = std::mt19937;

template <class F>
F random_real(Random& random) {
  // Mostly ordinary values whose sums must be rounded; now and then a special one.
  switch (random() % 64) {
    case 0:
      return F{0};
    case 1:
      return -F{0};
    case 2:
      return std::numeric_limits<F>::infinity();
    case 3:
      return -std::numeric_limits<F>::infinity();
    case 4:
      return std::numeric_limits<F>::quiet_NaN();
    case 5:
      return -std::numeric_limits<F>::quiet_NaN();
    case 6:
      return std::numeric_limits<F>::denorm_min() * static_cast<F>(random() % 1000);
    default: {
      const auto mantissa = static_cast<F>(static_cast<std::int32_t>(random()));
      return std::ldexp(mantissa, static_cast<int>(random() % 12) - 36);
    }
  }
}

template <class T>
T random_value(Random& random) {
  if constexpr (std::is_same_v<T, bool>) {
    return random() % 2 == 0;
  } else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return reference::narrow<T>(random_real<float>(random));
  } else if constexpr (std::is_floating_point_v<T>) {
    return random_real<T>(random);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>((static_cast<std::uint64_t>(random()) << 32) | random());
  } else {
    using R = typename T::value_type;
    const R re = random_real<R>(random);
    return T(re, random_real<R>(random));
  }
}

/// A buffer of exactly `count` elements that starts at an odd address if `skew` is 1. Its contents
/// end where the heap block ends.
class Buffer {
 public:
  Buffer(std::size_t bytes, std::size_t skew)
      : memory_(std::make_unique<std::uint8_t[]>(bytes + skew)), bytes_(bytes), skew_(skew) {
    std::memset(memory_.get(), 0xCD, bytes + skew);
  }
  [[nodiscard]] std::uint8_t* data() const { return memory_.get() + skew_; }
  [[nodiscard]] Bytes bytes() const { return {data(), data() + bytes_}; }

 private:
  std::unique_ptr<std::uint8_t[]> memory_;
  std::size_t bytes_;
  std::size_t skew_;
};

template <class T>
struct Case {
  Op op = Op::sum;
  std::vector<std::uint8_t> merges;
  std::size_t count = 0;
  std::vector<Form> input_forms = {};  // cycled; empty: all values
  std::vector<Form> target_forms = {Form::value};
  std::vector<double> weights = {};
  double divisor = 1;
  std::size_t skew = 0;
  int in_place = -1;  // the input that is also the first target

  using A = reference::Acc<T>;
  static constexpr std::size_t size(Form form) {
    return form == Form::value ? sizeof(T) : sizeof(A);
  }

  void check(Random& random) const {
    const std::size_t n = merges.size();
    std::vector<Buffer> originals;
    std::vector<Input> inputs;
    for (std::size_t i = 0; i < n; ++i) {
      const Form form = input_forms.empty() ? Form::value : input_forms[i % input_forms.size()];
      originals.emplace_back(count * size(form), skew);
      for (std::size_t e = 0; e < count; ++e) {
        const T value = random_value<T>(random);
        if (form == Form::value) {
          std::memcpy(originals.back().data() + e * sizeof(T), &value, sizeof(T));
        } else {
          // Where the two forms are the same type, the value itself: a bool is 0 or 1.
          const A partial =
              sizeof(A) == sizeof(T) ? reference::widen(value) : random_value<A>(random);
          std::memcpy(originals.back().data() + e * sizeof(A), &partial, sizeof(A));
        }
      }
      inputs.push_back({originals.back().data(), form});
    }
    Reduction r{.op = op,
                .dtype = dtype_of<T>,
                .inputs = inputs,
                .merges = merges,
                .targets = {},
                .count = count,
                .weights = weights,
                .divisor = divisor};
    const std::vector<A> partial = reference::reduce<T>(r);
    Bytes expected_partial(count * sizeof(A));
    Bytes expected_value(count * sizeof(T));
    for (std::size_t e = 0; e < count; ++e) {
      const T value = reference::narrow<T>(partial[e]);
      std::memcpy(expected_partial.data() + e * sizeof(A), &partial[e], sizeof(A));
      std::memcpy(expected_value.data() + e * sizeof(T), &value, sizeof(T));
    }

    for (const std::int64_t cpu : available_targets()) {
      const OnTarget on(cpu);
      std::vector<Buffer> buffers;
      std::vector<Target> targets;
      std::vector<Input> placed = inputs;
      for (std::size_t t = 0; t < target_forms.size(); ++t) {
        buffers.emplace_back(count * size(target_forms[t]), skew);
        targets.push_back({buffers.back().data(), target_forms[t]});
      }
      if (in_place >= 0) {
        const auto shared = static_cast<std::size_t>(in_place);
        ASSERT_EQ(inputs[shared].form, target_forms[0]);
        if (count != 0) {
          std::memcpy(buffers[0].data(), inputs[shared].data, count * size(target_forms[0]));
        }
        placed[shared].data = buffers[0].data();
      }
      r.inputs = placed;
      r.targets = targets;
      reduce(r);
      for (std::size_t t = 0; t < targets.size(); ++t) {
        const Bytes& expected = targets[t].form == Form::value ? expected_value : expected_partial;
        ASSERT_EQ(buffers[t].bytes(), expected)
            << to_string(op) << " of " << to_string(dtype_of<T>) << " on " << hwy::TargetName(cpu)
            << ", " << n << " inputs, " << count << " elements, target " << t;
      }
    }
  }
};

template <class T>
std::vector<Op> ops() {
  std::vector<Op> supported;
  for (int op = 0; op < kOpCount; ++op) {
    if (check_supported(static_cast<Op>(op), dtype_of<T>).ok()) {
      supported.push_back(static_cast<Op>(op));
    }
  }
  return supported;
}

constexpr std::size_t kCounts[] = {0, 1, 3, 7, 15, 16, 17, 63, 64, 65, 1000, 2049};

template <class T>
class Reduce : public testing::Test {
 protected:
  Random random{20240607};
};
using AllTypes =
    testing::Types<double, float, Float16, BFloat16, std::int8_t, std::int16_t, std::int32_t,
                   std::int64_t, std::uint8_t, bool, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(Reduce, AllTypes);

TYPED_TEST(Reduce, FixedTreeOfEverySize) {
  std::vector<int> sizes = {33, 64};
  for (int n = 1; n <= 17; ++n) sizes.push_back(n);
  for (const Op op : ops<TypeParam>()) {
    for (const int n : sizes) {
      for (const std::size_t count : kCounts) {
        if (count == 1000 && n > 4 && n != 17) continue;  // the reference is slow
        const double divisor = op == Op::mean ? n : 1;
        ASSERT_NO_FATAL_FAILURE(
            (Case<TypeParam>{.op = op, .merges = tree_merges(n), .count = count, .divisor = divisor}
                 .check(this->random)));
      }
    }
  }
}

TYPED_TEST(Reduce, OddAssociations) {
  const std::vector<std::vector<std::uint8_t>> programs = {
      {0, 0, 2, 1},              // (a+(b+c))+d
      {0, 0, 0, 3},              // a+(b+(c+d))
      {0, 1, 1, 1, 1},           // (((a+b)+c)+d)+e
      {0, 0, 1, 0, 2, 2},        // a+(((b+c)+(d+e))+f)
      {0, 1, 0, 1, 0, 1, 0, 4},  // pairs, then folded from the right
      {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 19},  // a right comb of 20
  };
  for (const Op op : ops<TypeParam>()) {
    for (const auto& merges : programs) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{65}, std::size_t{700}}) {
        ASSERT_NO_FATAL_FAILURE(
            (Case<TypeParam>{.op = op, .merges = merges, .count = count}.check(this->random)));
      }
    }
  }
}

TYPED_TEST(Reduce, AStackDeeperThanTheScratch) {
  std::vector<std::uint8_t> merges(120, 0);
  merges.back() = 119;
  const Op op = ops<TypeParam>().front();
  ASSERT_NO_FATAL_FAILURE(
      (Case<TypeParam>{.op = op, .merges = merges, .count = 333}.check(this->random)));
}

TYPED_TEST(Reduce, ManyTargetsOfBothForms) {
  const Form v = Form::value;
  const Form p = Form::partial;
  const std::vector<Form> many(23, v);
  for (const Op op : ops<TypeParam>()) {
    for (const int n : {1, 2, 3, 17}) {
      for (const auto& forms : {std::vector<Form>{v, v}, {p}, {p, p, v, p, v}, many}) {
        for (const std::size_t count : {std::size_t{5}, std::size_t{200}}) {
          ASSERT_NO_FATAL_FAILURE((Case<TypeParam>{
              .op = op, .merges = tree_merges(n), .count = count, .target_forms = forms}
                                       .check(this->random)));
        }
      }
    }
  }
}

TYPED_TEST(Reduce, MixedForms) {
  const Form v = Form::value;
  const Form p = Form::partial;
  for (const Op op : ops<TypeParam>()) {
    for (const int n : {1, 2, 3, 5, 8, 17}) {
      for (const auto& from : {std::vector<Form>{p}, {v, p}, {p, p, v}, {v, v, p, p}}) {
        for (const auto& to : {std::vector<Form>{v}, {p}, {v, p, v}}) {
          for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{3000}}) {
            if (count == 3000 && n != 3) continue;
            const double divisor = op == Op::mean ? 3 : 1;
            ASSERT_NO_FATAL_FAILURE((Case<TypeParam>{.op = op,
                                                     .merges = tree_merges(n),
                                                     .count = count,
                                                     .input_forms = from,
                                                     .target_forms = to,
                                                     .divisor = divisor}
                                         .check(this->random)));
          }
        }
      }
    }
  }
}

TYPED_TEST(Reduce, InPlaceForEveryInput) {
  for (const Op op : ops<TypeParam>()) {
    for (const int n : {1, 2, 3, 6, 17}) {
      for (int shared = 0; shared<n; shared += n> 6 ? 5 : 1) {
        for (const std::size_t count : {std::size_t{1}, std::size_t{65}, std::size_t{1500}}) {
          if (count == 1500 && n > 3) continue;
          ASSERT_NO_FATAL_FAILURE((Case<TypeParam>{
              .op = op, .merges = tree_merges(n), .count = count, .in_place = shared}
                                       .check(this->random)));
        }
      }
    }
    const std::vector<std::uint8_t> odd = {0, 0, 2, 1};
    for (int shared = 0; shared < 4; ++shared) {
      ASSERT_NO_FATAL_FAILURE((Case<TypeParam>{.op = op,
                                               .merges = odd,
                                               .count = 3000,
                                               .target_forms = {Form::value, Form::partial},
                                               .in_place = shared}
                                   .check(this->random)));
    }
  }
}

TYPED_TEST(Reduce, UnalignedAddresses) {
  for (const Op op : ops<TypeParam>()) {
    for (const int n : {2, 5}) {
      for (const std::size_t count : kCounts) {
        ASSERT_NO_FATAL_FAILURE((Case<TypeParam>{.op = op,
                                                 .merges = tree_merges(n),
                                                 .count = count,
                                                 .input_forms = {Form::value, Form::partial},
                                                 .target_forms = {Form::value, Form::partial},
                                                 .skew = 1}
                                     .check(this->random)));
        ASSERT_NO_FATAL_FAILURE(
            (Case<TypeParam>{.op = op, .merges = tree_merges(n), .count = count, .skew = 1}.check(
                this->random)));
      }
    }
  }
}

// More than a private cache holds, so that stores go around it; tails and alignment as before.
TYPED_TEST(Reduce, TargetsLargerThanTheCache) {
  const Op op = ops<TypeParam>().front();
  const std::size_t count = (4U << 20) / sizeof(TypeParam) / 3 + 1;
  for (const std::size_t skew : {std::size_t{0}, std::size_t{1}, 3 * sizeof(TypeParam)}) {
    ASSERT_NO_FATAL_FAILURE(
        (Case<TypeParam>{.op = op, .merges = tree_merges(2), .count = count, .skew = skew}.check(
            this->random)));
    ASSERT_NO_FATAL_FAILURE(
        (Case<TypeParam>{.op = op,
                         .merges = tree_merges(3),
                         .count = count,
                         .target_forms = {Form::value, Form::value, Form::value},
                         .skew = skew}
             .check(this->random)));
  }
}

// Small parts of something large: several targets, each with its own place in a cache line, and
// nothing written beside them.
TEST(LargeBatch, ItsPartsAreWrittenExactly) {
  constexpr std::size_t kTargets = 3;
  constexpr std::size_t kRoom = 512;
  constexpr float kUntouched = -7;
  const std::vector<float> a(kRoom, 1.5F);
  const std::vector<float> b(kRoom, 2.0F);
  const Input inputs[] = {{a.data()}, {b.data()}};
  for (const std::int64_t cpu : available_targets()) {
    const OnTarget on(cpu);
    for (const std::size_t apart : {0U, 1U, 16U}) {  // elements; 16 are a cache line
      for (std::size_t begin = 0; begin < 20; ++begin) {
        for (const std::size_t count : {1U, 15U, 16U, 17U, 64U, 200U}) {
          alignas(64) float memory[kTargets][kRoom];
          Target targets[kTargets];
          for (std::size_t t = 0; t < kTargets; ++t) {
            std::fill_n(memory[t], kRoom, kUntouched);
            targets[t] = {memory[t] + begin + apart * t};
          }
          reduce({.op = Op::sum,
                  .dtype = DType::float32,
                  .inputs = inputs,
                  .merges = tree_merges(2),
                  .targets = targets,
                  .count = count,
                  .batch_bytes = std::size_t{1} << 40});
          for (std::size_t t = 0; t < kTargets; ++t) {
            const std::size_t from = begin + apart * t;
            for (std::size_t i = 0; i < kRoom; ++i) {
              const bool written = i >= from && i < from + count;
              ASSERT_EQ(memory[t][i], written ? 3.5F : kUntouched)
                  << hwy::TargetName(cpu) << " " << begin << " " << apart << " " << count;
            }
          }
        }
      }
    }
  }
}

template <class T>
class WeightedReduce : public Reduce<T> {};
using RealTypes =
    testing::Types<double, float, Float16, BFloat16, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(WeightedReduce, RealTypes);

// Seven-digit weights make every product inexact: a fused multiply-add would differ.
TYPED_TEST(WeightedReduce, MultipliesThenAdds) {
  for (const int n : {1, 2, 3, 4, 5, 8, 12, 16, 17, 33}) {
    std::vector<double> weights;
    weights.reserve(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) weights.push_back(0.1234567 * (i + 1));
    for (const std::size_t count : kCounts) {
      for (const auto& from : {std::vector<Form>{Form::value}, {Form::value, Form::partial}}) {
        ASSERT_NO_FATAL_FAILURE((Case<TypeParam>{.merges = tree_merges(n),
                                                 .count = count,
                                                 .input_forms = from,
                                                 .target_forms = {Form::value, Form::partial},
                                                 .weights = weights,
                                                 .divisor = 3}
                                     .check(this->random)));
      }
    }
  }
}

TEST(WeightedSum, IsNotFused) {
  // w*x = 1 + 2^-12 + 2^-26 does not fit: fused, the last term survives the subtraction.
  const float x = 1.0F + 0x1p-13F;
  const float product = x * x;
  const std::vector<float> a(33, x);
  const std::vector<float> b(33, -product);
  for (const std::int64_t cpu : available_targets()) {
    const OnTarget on(cpu);
    std::vector<float> out(33, 7.0F);
    const Input inputs[] = {{a.data()}, {b.data()}};
    const Target targets[] = {{out.data()}};
    const double weights[] = {x, 1};
    reduce({.op = Op::sum,
            .dtype = DType::float32,
            .inputs = inputs,
            .merges = tree_merges(2),
            .targets = targets,
            .count = out.size(),
            .weights = weights});
    for (const float value : out) ASSERT_EQ(value, 0.0F) << hwy::TargetName(cpu);
  }
}

TEST(Mean, DividesInsteadOfMultiplyingByTheReciprocal) {
  const std::vector<double> a = {5, 7, 11, 13, 17, 19, 23, 29, 31};
  std::vector<double> out(a.size());
  const Input inputs[] = {{a.data()}};
  const Target targets[] = {{out.data()}};
  reduce({.op = Op::mean,
          .dtype = DType::float64,
          .inputs = inputs,
          .merges = tree_merges(1),
          .targets = targets,
          .count = a.size(),
          .divisor = 49});
  bool differs = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(out[i], a[i] / 49);
    differs |= out[i] != a[i] * (1.0 / 49);
  }
  EXPECT_TRUE(differs) << "the test could not tell the two apart";
}

TEST(TreeMerges, AreABinaryCounter) {
  using M = std::vector<std::uint8_t>;
  EXPECT_EQ(tree_merges(1), (M{0}));
  EXPECT_EQ(tree_merges(2), (M{0, 1}));
  EXPECT_EQ(tree_merges(3), (M{0, 1, 1}));
  EXPECT_EQ(tree_merges(4), (M{0, 1, 0, 2}));
  EXPECT_EQ(tree_merges(5), (M{0, 1, 0, 2, 1}));
  EXPECT_EQ(tree_merges(6), (M{0, 1, 0, 2, 0, 2}));
  EXPECT_EQ(tree_merges(7), (M{0, 1, 0, 2, 0, 1, 2}));
  EXPECT_EQ(tree_merges(8), (M{0, 1, 0, 2, 0, 1, 0, 3}));
}

/// The tree by its definition: split at the largest power of two below n.
void append_tree(std::vector<std::uint8_t>& merges, int n) {
  if (n == 1) return merges.push_back(0);
  int split = 1;
  while (split * 2 < n) split *= 2;
  append_tree(merges, split);
  append_tree(merges, n - split);
  ++merges.back();
}

TEST(TreeMerges, SplitAtTheLargestPowerOfTwo) {
  for (int n = 1; n <= 300; ++n) {
    std::vector<std::uint8_t> expected;
    append_tree(expected, n);
    ASSERT_EQ(tree_merges(n), expected) << n;
  }
}

TEST(CheckSupported, NamesTheAlternative) {
  const Status mean = check_supported(Op::mean, DType::int32);
  EXPECT_EQ(mean.kind(), ErrorKind::invalid_usage);
  EXPECT_EQ(mean.code(), Code::invalid_argument);
  EXPECT_THAT(mean.message(),
              AllOf(HasSubstr("mean"), HasSubstr("int32"), HasSubstr("sum, then divide")));
  EXPECT_THAT(check_supported(Op::sum, DType::boolean).message(),
              AllOf(HasSubstr("sum"), HasSubstr("bool"), HasSubstr("max")));
  EXPECT_THAT(check_supported(Op::min, DType::complex64).message(),
              AllOf(HasSubstr("min"), HasSubstr("complex64"), HasSubstr("order")));
  EXPECT_THAT(check_supported(Op::product, DType::complex128).message(),
              AllOf(HasSubstr("product"), HasSubstr("complex128"), HasSubstr("gather")));
}

TEST(CheckSupported, KnowsWhatExists) {
  int supported = 0;
  for (int op = 0; op < kOpCount; ++op) {
    for (int type = 0; type < kDTypeCount; ++type) {
      supported += check_supported(static_cast<Op>(op), static_cast<DType>(type)).ok() ? 1 : 0;
    }
  }
  // Four floating types with five operations, five integers with four, bool and complex with two.
  EXPECT_EQ(supported, 4 * 5 + 5 * 4 + 2 + 2 * 2);
}

TEST(CopyAroundCache, CopiesExactlyWhatIsAsked) {
  constexpr std::size_t kMost = 70'000;
  constexpr std::byte kUntouched{0xa5};
  std::vector<std::byte> from(kMost + 64);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 251);
  for (const std::size_t bytes : {0, 1, 63, 64, 65, 4096, 70'000}) {
    for (const std::size_t source : {0, 5}) {
      for (const std::size_t target : {0, 1, 33}) {
        std::vector<std::byte> to(kMost + 64, kUntouched);
        copy_around_cache(to.data() + target, from.data() + source, bytes);
        EXPECT_EQ(std::memcmp(to.data() + target, from.data() + source, bytes), 0) << bytes;
        const auto is_untouched = [](std::byte each) { return each == kUntouched; };
        EXPECT_TRUE(std::all_of(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(target),
                                is_untouched));
        EXPECT_TRUE(std::all_of(to.begin() + static_cast<std::ptrdiff_t>(target + bytes), to.end(),
                                is_untouched));
      }
    }
  }
}

TEST(TargetName, IsTheBestOneAvailable) {
  std::string names;
  for (const std::int64_t cpu : available_targets()) {
    const OnTarget on(cpu);
    EXPECT_STREQ(target_name(), hwy::TargetName(cpu));
    names += std::string(names.empty() ? "" : " ") + hwy::TargetName(cpu);
  }
  RecordProperty("targets", names);
  EXPECT_STREQ(target_name(), hwy::TargetName(available_targets().front()));
}

}  // namespace
}  // namespace lockstep::kernel
