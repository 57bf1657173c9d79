#include "tensor/reduce.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <thread>

#include "lockstep/error.h"
#include "tensor/dtype.h"

namespace lockstep::tensor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr at::ScalarType kAddable[] = {
    at::kDouble, at::kFloat, at::kHalf, at::kBFloat16,     at::kChar,          at::kShort,
    at::kInt,    at::kLong,  at::kByte, at::kComplexFloat, at::kComplexDouble,
};

at::Generator seeded(std::uint64_t seed) { return at::detail::createCPUGenerator(seed); }

Tensor random_tensor(at::IntArrayRef shape, at::ScalarType type, std::uint64_t seed) {
  const auto generator = seeded(seed);
  if (at::isIntegralType(type, false)) return at::randint(-100, 100, shape, generator).to(type);
  if (type == at::kHalf || type == at::kBFloat16) return at::randn(shape, generator).to(type);
  return at::randn(shape, generator, at::TensorOptions(type)) * 1e3;
}

std::vector<Tensor> random_components(int n, at::IntArrayRef shape, at::ScalarType type) {
  std::vector<Tensor> components;
  for (int i = 0; i < n; ++i) {
    components.push_back(random_tensor(shape, type, static_cast<std::uint64_t>(100 + i)));
  }
  return components;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const Tensor x = a.contiguous();
  const Tensor y = b.contiguous();
  return x.numel() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

// The fixed tree as its definition: split at the largest power of two below n.
Tensor tree_sum(const std::vector<Tensor>& values, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return values[begin];
  std::size_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  return tree_sum(values, begin, begin + half) + tree_sum(values, begin + half, end);
}

// By torch's own additions; 16-bit types in float32, rounded once.
Tensor expected_sum(const std::vector<Tensor>& components) {
  const at::ScalarType type = components.front().scalar_type();
  if (type != at::kHalf && type != at::kBFloat16) {
    return tree_sum(components, 0, components.size()).clone();
  }
  std::vector<Tensor> wide;
  for (const Tensor& component : components) wide.push_back(component.to(at::kFloat));
  return tree_sum(wide, 0, wide.size()).to(type);
}

Tensor expected_mean(const std::vector<Tensor>& components) {
  const at::ScalarType type = components.front().scalar_type();
  const auto n = static_cast<double>(components.size());
  std::vector<Tensor> wide;
  if (at::isIntegralType(type, false)) {
    for (const Tensor& component : components) wide.push_back(component.to(at::kLong));
    const auto result = to_scalar_type(mean_dtype(to_dtype(type)));
    return (tree_sum(wide, 0, wide.size()).to(at::kDouble) / n).to(result);
  }
  if (at::isComplexType(type)) {
    // Both parts divided. Torch's own quotient divides by the complex number n + 0i, other bits.
    const Tensor sum = tree_sum(components, 0, components.size());
    return at::view_as_complex(at::view_as_real(sum) / n);
  }
  if (type != at::kHalf && type != at::kBFloat16) {
    return tree_sum(components, 0, components.size()) / n;
  }
  for (const Tensor& component : components) wide.push_back(component.to(at::kFloat));
  return (tree_sum(wide, 0, wide.size()) / n).to(type);
}

std::string refusal(const std::vector<Tensor>& components, Combine combine = Combine::sum) {
  try {
    reduce_dense(combine, components);
    return "accepted";
  } catch (const InvalidUsage& error) {
    return error.what();
  }
}

ResultMemory& memory() {
  static ResultMemory all;
  return all;
}

TEST(Reduce, IsTheFixedTreeForEveryCountAndDtype) {
  for (const at::ScalarType type : kAddable) {
    for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 33}) {
      const auto components = random_components(n, {3, 41}, type);
      EXPECT_TRUE(same_bits(reduce_dense(Combine::sum, components), expected_sum(components)))
          << "sum of " << n << " " << c10::toString(type);
      const Tensor mean = reduce_dense(Combine::mean, components);
      EXPECT_TRUE(same_bits(mean, expected_mean(components)))
          << "mean of " << n << " " << c10::toString(type);
    }
  }
}

TEST(Reduce, AssociationShows) {
  // ((1e8 + 1) + (-1e8 + 1)) + 1 in float32: the small ones vanish into 1e8, not into each other.
  const auto sum_of = [](std::vector<float> values) {
    std::vector<Tensor> components;
    for (const float value : values) components.push_back(at::full({1}, value));
    return reduce_dense(Combine::sum, components).item<float>();
  };
  EXPECT_EQ(sum_of({1e8F, 1, -1e8F}), 0);
  EXPECT_EQ(sum_of({1, 1e8F, -1e8F}), 0);
  EXPECT_EQ(sum_of({1e8F, -1e8F, 1}), 1);
  EXPECT_EQ(sum_of({1e8F, 1, -1e8F, 1, 1}), 1);  // left to right it would be 2
  EXPECT_EQ(sum_of({1e8F, -1e8F, 1, 1, 1}), 3);
  EXPECT_EQ(sum_of({1, 1, 1e8F, -1e8F, 5}), 7);
  EXPECT_EQ(sum_of({1, 1e8F, 1, -1e8F, 5}), 5);
}

TEST(Reduce, TwoComponentsEqualTorch) {
  for (const at::ScalarType type : kAddable) {
    const Tensor a = random_tensor({1000}, type, 1);
    const Tensor b = random_tensor({1000}, type, 2);
    EXPECT_TRUE(same_bits(reduce_dense(Combine::sum, {a, b}), a + b)) << c10::toString(type);
  }
}

TEST(Reduce, SixteenBitsAreRoundedOnce) {
  // 2048 + 1 + 1 is 2050 exactly; rounded after each step 2048 stays 2048.
  const auto half = [](double value) { return at::full({1}, value, at::kHalf); };
  EXPECT_EQ(reduce_dense(Combine::sum, {half(2048), half(1), half(1)}).item<float>(), 2050);
}

TEST(Reduce, IntegerMeansAreFloatingAndExact) {
  const auto mean_of = [](at::ScalarType type, double a, double b) {
    return reduce_dense(Combine::mean, {at::full({2}, a, type), at::full({2}, b, type)});
  };
  EXPECT_EQ(mean_of(at::kLong, 1, 2).scalar_type(), at::kDouble);
  EXPECT_EQ(mean_of(at::kLong, 1, 2)[1].item<double>(), 1.5);
  EXPECT_EQ(mean_of(at::kInt, 1, 2).scalar_type(), at::kDouble);
  EXPECT_EQ(mean_of(at::kInt, 2147483647, 2147483646)[0].item<double>(), 2147483646.5);
  EXPECT_EQ(mean_of(at::kChar, 127, 127).scalar_type(), at::kFloat);
  EXPECT_EQ(mean_of(at::kChar, 127, 127)[0].item<float>(), 127);
  EXPECT_EQ(mean_of(at::kChar, -128, -127)[0].item<float>(), -127.5);
  EXPECT_EQ(mean_of(at::kByte, 255, 254)[0].item<float>(), 254.5);
  EXPECT_EQ(mean_of(at::kShort, 32767, 32766)[0].item<float>(), 32766.5);
  // Sums keep their type and wrap.
  EXPECT_EQ(reduce_dense(Combine::sum, {at::full({1}, 127, at::kChar), at::full({1}, 1, at::kChar)})
                .item<int>(),
            -128);
}

TEST(Reduce, ShapesWithoutElementsAndWithoutAxes) {
  EXPECT_EQ(reduce_dense(Combine::sum, {at::full({}, 2.0), at::full({}, 3.0)}).dim(), 0);
  EXPECT_EQ(reduce_dense(Combine::sum, {at::full({}, 2.0), at::full({}, 3.0)}).item<float>(), 5);
  const Tensor empty = reduce_dense(Combine::mean, {at::empty({0, 3}), at::empty({0, 3})});
  EXPECT_EQ(empty.sizes(), at::IntArrayRef({0, 3}));
  EXPECT_EQ(reduce_dense(Combine::mean, {at::empty({0}, at::kInt)}).scalar_type(), at::kDouble);
}

TEST(Reduce, AnyStrides) {
  const auto base = random_components(3, {6, 8}, at::kFloat);
  const std::vector<std::vector<Tensor>> views = {
      {base[0].t(), base[1].t(), base[2].t()},               // alike, dense
      {base[0].t(), base[1].t().contiguous(), base[2].t()},  // not alike
      {base[0].slice(1, 0, 8, 2), base[1].slice(1, 1, 8, 2), base[2].slice(1, 0, 4)},  // holes
      {base[0][0].expand({5, 8}), base[1][0].expand({5, 8}), base[2].slice(0, 0, 5)},  // overlap
      {base[0].slice(0, 2, 3).t(), base[1].slice(0, 1, 2).t(), base[2].slice(0, 0, 1).t()},
  };
  for (const auto& components : views) {
    EXPECT_TRUE(same_bits(reduce_dense(Combine::sum, components), expected_sum(components)));
  }
  const auto images = random_components(2, {2, 3, 4, 5}, at::kFloat);
  const std::vector<Tensor> last = {images[0].contiguous(at::MemoryFormat::ChannelsLast),
                                    images[1].contiguous(at::MemoryFormat::ChannelsLast)};
  const Tensor sum = reduce_dense(Combine::sum, last);
  EXPECT_TRUE(same_bits(sum, expected_sum(images)));
  EXPECT_TRUE(sum.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(Reduce, LazyConjugatesAndSigns) {
  const Tensor a = random_tensor({9}, at::kComplexFloat, 1);
  const Tensor b = random_tensor({9}, at::kComplexFloat, 2);
  EXPECT_TRUE(
      same_bits(reduce_dense(Combine::sum, {at::conj(a), b}), at::conj(a).resolve_conj() + b));
  const Tensor c = at::imag(at::conj(a));
  ASSERT_TRUE(c.is_neg());
  EXPECT_TRUE(same_bits(reduce_dense(Combine::sum, {c, c}), (c + c).resolve_neg()));
}

TEST(Reduce, ResultsNeverRequireGradients) {
  const Tensor a = at::ones({3}).requires_grad_();
  const Tensor b = (a * 2).t();
  const Tensor sum = reduce_dense(Combine::sum, {a, b});
  EXPECT_FALSE(sum.requires_grad());
  EXPECT_EQ(sum.sum().item<float>(), 9);
}

TEST(Reduce, InPlaceAndToSeveralOutputs) {
  for (const int n : {1, 2, 3, 17}) {
    auto components = random_components(n, {257}, at::kFloat);
    const Tensor expected = expected_mean(components);
    // Every component becomes the result: an all-reduce in place.
    BatchReduce({{components, components, Combine::mean}}).run();
    for (const Tensor& component : components) EXPECT_TRUE(same_bits(component, expected)) << n;
  }
  auto components = random_components(2, {100}, at::kFloat);
  const ReduceJob job = make_job(Combine::sum, components, 3, memory());
  ASSERT_EQ(job.outputs.size(), 3U);
  BatchReduce({job}).run();
  for (const Tensor& output : job.outputs) {
    EXPECT_TRUE(same_bits(output, expected_sum(components)));
  }
  EXPECT_NE(job.outputs[0].data_ptr(), job.outputs[1].data_ptr());
}

// Jobs of many sizes and types, some of them empty.
std::vector<ReduceJob> mixed_jobs() {
  std::vector<ReduceJob> jobs;
  const std::int64_t sizes[] = {0, 1, 63, 100'000, 7, 0, 65'537, 64, 31'999};
  int i = 0;
  for (const std::int64_t size : sizes) {
    const at::ScalarType type = kAddable[static_cast<std::size_t>(i) % std::size(kAddable)];
    jobs.push_back(make_job(i % 2 == 0 ? Combine::sum : Combine::mean,
                            random_components(1 + i % 5, {size}, type), 1 + i % 2, memory()));
    ++i;
  }
  return jobs;
}

TEST(Reduce, PiecesGiveTheSameBits) {
  const auto whole = mixed_jobs();
  BatchReduce(whole).run();
  for (const int pieces : {2, 3, 4, 7, 64, 1000}) {
    const auto jobs = mixed_jobs();
    for (const ReduceJob& job : jobs) {
      for (const Tensor& output : job.outputs) output.fill_(99);
    }
    const BatchReduce batch(jobs);
    for (int piece = pieces - 1; piece >= 0; --piece) batch.run_piece(piece, pieces);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      for (const Tensor& output : jobs[i].outputs) {
        EXPECT_TRUE(same_bits(output, whole[i].outputs.front())) << i << " in " << pieces;
      }
    }
  }
}

TEST(Reduce, PiecesRunAtTheSameTime) {
  const auto whole = mixed_jobs();
  BatchReduce(whole).run();
  const auto jobs = mixed_jobs();
  const BatchReduce batch(jobs);
  const int pieces = batch.pieces(4);
  EXPECT_EQ(pieces, 4);
  {
    std::vector<std::jthread> workers;
    for (int piece = 0; piece < pieces; ++piece) {
      workers.emplace_back([&, piece] { batch.run_piece(piece, pieces); });
    }
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_TRUE(same_bits(jobs[i].outputs.back(), whole[i].outputs.front())) << i;
  }
}

TEST(Reduce, PiecesAreWorthTheWhile) {
  const auto pieces_of = [](std::int64_t elements, int workers) {
    return BatchReduce(
               {make_job(Combine::sum, random_components(2, {elements}, at::kFloat), 2, memory())})
        .pieces(workers);
  };
  EXPECT_EQ(pieces_of(0, 4), 1);
  EXPECT_EQ(pieces_of(100, 4), 1);
  EXPECT_EQ(pieces_of(1'000'000, 4), 4);
  EXPECT_EQ(pieces_of(1'000'000, 1), 1);
  EXPECT_EQ(BatchReduce({}).pieces(3), 1);
}

// Every piece carries its share: none is idle, and none does it all.
TEST(Reduce, PiecesShareEvenly) {
  const ReduceJob job =
      make_job(Combine::sum, {at::ones({1'000'003}), at::ones({1'000'003})}, 1, memory());
  const BatchReduce batch({job});
  constexpr int kPieces = 5;
  std::int64_t written = 0;
  for (int piece = 0; piece < kPieces; ++piece) {
    job.outputs[0].zero_();
    batch.run_piece(piece, kPieces);
    const Tensor touched = job.outputs[0].nonzero();
    EXPECT_NEAR(static_cast<double>(touched.numel()), 1'000'003 / 5.0, 64);
    EXPECT_EQ(touched[0].item<std::int64_t>() % 16, 0) << "not at a cache line";
    written += touched.numel();
  }
  EXPECT_EQ(written, 1'000'003);
}

TEST(Reduce, SaysWhichComponentDiffers) {
  EXPECT_THAT(refusal({at::ones({2, 3}), at::ones({2, 3}), at::ones({3, 2})}),
              AllOf(HasSubstr("component 2"), HasSubstr("[3, 2]"), HasSubstr("[2, 3]")));
  EXPECT_THAT(refusal({at::ones({2}), at::ones({2}, at::kDouble)}),
              AllOf(HasSubstr("component 1"), HasSubstr("Double"), HasSubstr("Float")));
  EXPECT_THAT(refusal({at::ones({2}), Tensor()}), HasSubstr("component 1"));
  EXPECT_THAT(refusal({}), HasSubstr("no components"));
  EXPECT_THAT(refusal({at::ones({2}, at::kBool)}), HasSubstr("sum of bool does not exist"));
  EXPECT_THAT(refusal({at::ones({2}, at::kBool)}, Combine::mean), HasSubstr("bool"));
  EXPECT_THROW(reduce_dense(Combine::sum, {at::ones({2}).to_sparse()}), Unsupported);
  EXPECT_THROW(reduce_dense(Combine::sum, {at::ones({2}, at::kMeta)}), Unsupported);
}

TEST(Reduce, ChecksOutputs) {
  const Tensor x = at::ones({2, 3});
  EXPECT_THROW(BatchReduce({{{x}, {}, Combine::sum}}), InvalidUsage);
  EXPECT_THROW(BatchReduce({{{x}, {Tensor()}, Combine::sum}}), InvalidUsage);
  EXPECT_THROW(BatchReduce({{{x}, {at::ones({3, 2})}, Combine::sum}}), InvalidUsage);
  EXPECT_THROW(BatchReduce({{{x}, {at::ones({2, 3}, at::kInt)}, Combine::sum}}), InvalidUsage);
  EXPECT_THROW(BatchReduce({{{x}, {at::ones({2, 6}).slice(1, 0, 3)}, Combine::sum}}), InvalidUsage);
}

TEST(DTypes, GoBothWays) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    EXPECT_EQ(to_dtype(to_scalar_type(type)), type);
    EXPECT_EQ(c10::elementSize(to_scalar_type(type)), size_of(type));
  }
  try {
    to_dtype(at::kQInt8);
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), HasSubstr("QInt8"));
  }
  EXPECT_THROW(to_dtype(at::kComplexHalf), Unsupported);
}

Tensor slices(const std::vector<std::int64_t>& rows, const Tensor& values, std::int64_t height) {
  const Tensor indices = at::tensor(rows).reshape({1, -1});
  return at::sparse_coo_tensor(indices, values, {height, values.size(1)});
}

TEST(ReduceSparse, KeepsDuplicatesInReplicaOrder) {
  const Tensor a = slices({0, 1}, at::tensor({1.F, 2.F}).reshape({2, 1}), 3);
  const Tensor b = slices({1, 2}, at::tensor({3.F, 4.F}).reshape({2, 1}), 3);
  const Tensor sum = reduce_sparse(Combine::sum, {a, b});
  ASSERT_TRUE(sum.is_sparse());
  EXPECT_FALSE(sum.is_coalesced());
  EXPECT_TRUE(at::equal(sum._indices(), at::tensor({0, 1, 1, 2}, at::kLong).reshape({1, 4})));
  EXPECT_TRUE(at::equal(sum._values(), at::tensor({1.F, 2.F, 3.F, 4.F}).reshape({4, 1})));
  EXPECT_TRUE(at::equal(sum.to_dense(), a.to_dense() + b.to_dense()));
  const Tensor mean = reduce_sparse(Combine::mean, {a, b});
  EXPECT_TRUE(at::equal(mean._values(), sum._values() / 2));
  EXPECT_TRUE(at::equal(mean._indices(), sum._indices()));
}

TEST(ReduceSparse, MixedIsDense) {
  const Tensor a = slices({0, 2}, at::tensor({1.F, 2.F, 3.F, 4.F}).reshape({2, 2}), 3);
  const Tensor b = at::tensor({0.F, 0.F, 5.F, 6.F, 7.F, 8.F}).reshape({3, 2});
  const Tensor expected = at::tensor({1.F, 2.F, 5.F, 6.F, 10.F, 12.F}).reshape({3, 2});
  const Tensor sum = reduce_sparse(Combine::sum, {a, b});
  EXPECT_FALSE(sum.is_sparse());
  EXPECT_TRUE(at::equal(sum, expected));
  EXPECT_TRUE(at::equal(reduce_sparse(Combine::mean, {b, a}), expected / 2));
}

TEST(ReduceSparse, OneComponentIntegersAndNothing) {
  const Tensor a = slices({1, 1}, at::tensor({1, 2}, at::kInt).reshape({2, 1}), 3);
  EXPECT_TRUE(at::equal(reduce_sparse(Combine::sum, {a})._values(), a.coalesce()._values()));
  const Tensor mean = reduce_sparse(Combine::mean, {a, a});
  EXPECT_EQ(mean.scalar_type(), at::kDouble);
  EXPECT_TRUE(at::equal(mean.to_dense(), at::tensor({0., 3., 0.}, at::kDouble).reshape({3, 1})));
  const Tensor none = at::zeros({3, 1}).to_sparse();
  EXPECT_EQ(reduce_sparse(Combine::sum, {none, none})._nnz(), 0);
  const Tensor wanting = slices({0}, at::ones({1, 2}), 3).requires_grad_();
  EXPECT_FALSE(reduce_sparse(Combine::sum, {wanting, wanting}).requires_grad());
  EXPECT_FALSE(reduce_sparse(Combine::sum, {wanting, at::ones({3, 2})}).requires_grad());
}

TEST(ReduceSparse, MeansHaveTheBitsOfDenseOnes) {
  for (const at::ScalarType type : kAddable) {
    const auto dense = random_components(3, {50, 1}, type);
    const Tensor none = at::zeros({50, 1}, type).to_sparse(1);
    // One component has values, the others none: the sum is exact, the division shows.
    const Tensor mean = reduce_sparse(Combine::mean, {none, dense[0].to_sparse(1), none});
    const Tensor zeros = at::zeros({50, 1}, type);
    EXPECT_TRUE(at::equal(mean.to_dense(), reduce_dense(Combine::mean, {zeros, dense[0], zeros})))
        << c10::toString(type);
  }
}

TEST(ReduceSparse, RefusesWhatDoesNotAgree) {
  const Tensor a = at::ones({3, 2}).to_sparse(1);
  EXPECT_THROW(reduce_sparse(Combine::sum, {a, at::ones({3, 2}).to_sparse(2)}), InvalidUsage);
  EXPECT_THROW(reduce_sparse(Combine::sum, {a, at::ones({3, 3}).to_sparse(1)}), InvalidUsage);
  EXPECT_THROW(reduce_sparse(Combine::sum, {a, at::ones({3, 2}, at::kDouble)}), InvalidUsage);
  EXPECT_THROW(reduce_sparse(Combine::sum, {a.to(at::kBool)}), InvalidUsage);
}

}  // namespace
}  // namespace lockstep::tensor
