// The cross-device ops of one process: what they give, on every road, and what they refuse.
#include <random>

#include "helpers.h"
#include "lockstep/distribution_strategy.h"
#include "strategy/core.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Tensor sparse(const std::vector<std::int64_t>& rows, const Tensor& values, std::int64_t height) {
  return torch::sparse_coo_tensor(torch::tensor(rows, torch::kLong).view({1, -1}), values,
                                  {height, values.size(1)});
}

struct NamedOps {
  const char* name;
  std::shared_ptr<CrossDeviceOps> ops;
};

/// Every op, with every way to pack.
std::vector<NamedOps> all_ops() {
  const auto sum = [](const std::vector<Tensor>& each) {
    Tensor total = each.front().clone();
    for (std::size_t i = 1; i < each.size(); ++i) total += each[i];
    return total;
  };
  using All = AllReduceCrossDeviceOps;
  return {
      {"one device", std::make_shared<ReductionToOneDevice>()},
      {"one device, CPU:0", std::make_shared<ReductionToOneDevice>("CPU:0")},
      {"one device, accumulation", std::make_shared<ReductionToOneDevice>(std::nullopt, sum)},
      {"nccl, 1 pack", std::make_shared<NcclAllReduce>(1)},
      {"nccl, no packs", std::make_shared<NcclAllReduce>(0)},
      {"hierarchical, 1 pack", std::make_shared<HierarchicalCopyAllReduce>(1)},
      {"hierarchical, 8 packs", std::make_shared<HierarchicalCopyAllReduce>(8)},
      {"hierarchical, no packs", std::make_shared<HierarchicalCopyAllReduce>(0)},
      {"hierarchical, small ones together",
       std::make_shared<All>(AllReduceOptions{.all_reduce_alg = "hierarchical_copy",
                                              .num_packs = 0,
                                              .agg_small_grads_max_bytes = 100,
                                              .agg_small_grads_max_group = 10})},
  };
}

using CrossDeviceOpsTest = LoggedTest;
using AllReduceOpsTest = LoggedTest;
using SparseTest = LoggedTest;

TEST_F(CrossDeviceOpsTest, Case65EveryOpOnEveryDestination) {
  for (const auto& [name, ops] : all_ops()) {
    for (const int n : {1, 2, 3, 4, 8}) {
      MirroredStrategy strategy(cpus(n));
      auto scope = strategy.scope();
      const auto values = [&](double shift) {
        std::vector<Tensor> each;
        for (int i = 0; i < n; ++i) each.push_back(torch::full({}, i + shift));
        return on_devices(std::move(each));
      };
      const double mean = (n - 1) / 2.0;
      const std::vector<Destinations> destinations = {strategy.broadcast(torch::ones({})),
                                                      strategy.broadcast(torch::ones({}), "CPU:0"),
                                                      "CPU:0", variable("v", 1.0), devices(n)};
      for (const Destinations& first : destinations) {
        const auto one = ops->reduce(ReduceOp::mean, values(0), first);
        EXPECT_EQ(one.devices(), first.devices());
        EXPECT_THAT(numbers(one), ::testing::Each(mean)) << name << " " << n;
        EXPECT_THAT(numbers(ops->reduce(ReduceOp::sum, values(1), first)),
                    ::testing::Each(n * (mean + 1)));
        for (const Destinations& second : destinations) {
          const std::vector<ReducePair> pairs = {{values(0), first}, {values(1), second}};
          const auto both = ops->batch_reduce(ReduceOp::mean, pairs);
          ASSERT_EQ(both.size(), 2U);
          EXPECT_THAT(numbers(both[0]), ::testing::Each(mean));
          EXPECT_THAT(numbers(both[1]), ::testing::Each(mean + 1));
          EXPECT_EQ(both[1].devices(), second.devices());
        }
        const auto ones = ops->broadcast(torch::ones({}), first);
        EXPECT_THAT(numbers(ones), ::testing::Each(1.0));
        EXPECT_EQ(ones.devices(), first.devices());
      }
    }
  }
}

/// Values of random shapes, dtypes and layouts, the same for each seed.
std::vector<PerReplica<Tensor>> random_values(int seed, int n) {
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto below = [&](int limit) {
    return std::uniform_int_distribution<std::int64_t>(0, limit - 1)(random);
  };
  const at::ScalarType types[] = {torch::kFloat, torch::kFloat,       torch::kDouble,
                                  torch::kHalf,  torch::kLong,        torch::kBFloat16,
                                  torch::kByte,  torch::kShort,       torch::kInt,
                                  torch::kChar,  torch::kComplexFloat};
  auto generator = torch::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(seed));
  std::vector<PerReplica<Tensor>> values;
  const std::int64_t count = 1 + below(12);
  for (std::int64_t k = 0; k < count; ++k) {
    std::vector<std::int64_t> sizes;
    for (std::int64_t axis = below(4); axis-- > 0;) sizes.push_back(below(seed % 5 == 0 ? 60 : 9));
    const at::ScalarType type = types[below(std::size(types))];
    const bool turned = below(3) == 0;
    const bool recorded = below(4) == 0 && at::isFloatingType(type);
    std::vector<Tensor> each;
    for (int i = 0; i < n; ++i) {
      Tensor one = torch::empty(sizes, torch::kDouble).normal_(0, 20, generator).to(type);
      if (turned && one.dim() > 1) one = one.transpose(0, 1).contiguous().transpose(0, 1);
      // One replica's memory has gaps.
      if (i == 1 && one.dim() > 0) one = torch::stack({one, one}, -1).select(-1, 0);
      each.push_back(recorded ? one.requires_grad_() : one);
    }
    values.push_back(on_devices(std::move(each)));
  }
  return values;
}

/// The sum in the fixed order, by hand: pairs of neighbours, as a binary counter merges them.
Tensor tree_sum(const std::vector<Tensor>& each, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return each[begin];
  std::size_t half = 1;
  while (2 * half < end - begin) half *= 2;
  return tree_sum(each, begin, begin + half) + tree_sum(each, begin + half, end);
}

// Ops, packings, numbers of lanes, execution modes: only the data decides the bits.
TEST_F(CrossDeviceOpsTest, TheBitsAreTheSameEverywhere) {
  for (int seed = 0; seed < 18; ++seed) {
    const int n = std::vector{1, 2, 3, 4, 5, 8}[static_cast<std::size_t>(seed) % 6];
    const auto values = random_values(seed, n);
    std::vector<ReducePair> pairs;
    for (std::size_t k = 0; k < values.size(); ++k) {
      const DeviceList some = devices(1 + static_cast<int>(k) % n);
      pairs.push_back({values[k], k % 3 == 0 ? Destinations(some) : Destinations(values[k])});
    }
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
      const auto expected = ReductionToOneDevice().batch_reduce(op, pairs);
      for (const auto& [name, ops] : all_ops()) {
        if (std::string(name).ends_with("accumulation")) continue;
        for (const int lanes : {1, 2, 4}) {
          for (const Execution mode : {Execution::concurrent, Execution::sequential}) {
            if (mode == Execution::sequential && lanes != 2) continue;
            MirroredStrategy strategy(cpus(lanes, mode));
            auto scope = strategy.scope();
            const auto results = ops->batch_reduce(op, pairs);
            ASSERT_EQ(results.size(), pairs.size());
            for (std::size_t k = 0; k < results.size(); ++k) {
              EXPECT_EQ(results[k].devices(), pairs[k].destinations.devices());
              for (int d = 0; d < results[k].size(); ++d) {
                EXPECT_FALSE(results[k][d].requires_grad());
                ASSERT_TRUE(same_bits(results[k][d], expected[k][0]))
                    << name << ", seed " << seed << ", value " << k << ", " << lanes << " lanes";
              }
            }
          }
        }
      }
    }
  }
}

TEST_F(CrossDeviceOpsTest, TheSumIsTheFixedTree) {
  for (const int n : {2, 3, 5, 7, 8, 16, 17}) {
    std::vector<Tensor> each;
    for (int i = 0; i < n; ++i) each.push_back(torch::randn({301}) * 1e4);
    const Tensor expected = tree_sum(each, 0, each.size());
    for (const auto& [name, ops] : all_ops()) {
      if (std::string(name).ends_with("accumulation")) continue;
      const auto value = on_devices(each);
      EXPECT_TRUE(same_bits(ops->reduce(ReduceOp::sum, value, value)[0], expected)) << name << n;
    }
  }
}

TEST_F(CrossDeviceOpsTest, ValuesOfEveryKind) {
  ReductionToOneDevice ops;
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  const Mirrored<Tensor> mirrored = strategy.broadcast(torch::full({}, 3.0));
  EXPECT_THAT(numbers(ops.reduce(ReduceOp::sum, mirrored, "CPU:1")), ElementsAre(6));
  const Variable v = variable("v", 5.0);
  EXPECT_THAT(numbers(ops.reduce(ReduceOp::sum, v, v)), ElementsAre(10, 10));
  EXPECT_THAT(numbers(v), ElementsAre(5, 5));  // not written
  const Tensor plain = torch::full({}, 7.0);
  EXPECT_THAT(numbers(ops.reduce(ReduceOp::sum, plain, devices(2))), ElementsAre(7, 7));
  EXPECT_THAT(numbers(ops.reduce(ReduceOp::mean, plain, plain)), ElementsAre(7));
}

TEST_F(CrossDeviceOpsTest, OneComponentWhereItShouldGoIsItsOwnResult) {
  ReductionToOneDevice ops;
  const Tensor x = torch::ones({3}, torch::requires_grad());
  const PerReplica<Tensor> one({x}, DeviceList{"CPU:0"});
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
    const auto result = ops.reduce(op, one, "CPU:0");
    EXPECT_EQ(result[0].data_ptr(), x.data_ptr());
    EXPECT_FALSE(result[0].requires_grad());
    EXPECT_NE(ops.reduce(op, one, "CPU:1")[0].data_ptr(), x.data_ptr());
  }
  // Sparse ones, too, and no accumulation function is asked.
  const PerReplica<Tensor> rows({sparse({2, 0, 2}, torch::ones({3, 1}), 3)}, DeviceList{"CPU:0"});
  EXPECT_EQ(ops.reduce(ReduceOp::sum, rows, "CPU:0")[0]._nnz(), 3);
  ReductionToOneDevice never(
      std::nullopt, [](const std::vector<Tensor>&) -> Tensor { throw std::logic_error("called"); });
  EXPECT_EQ(never.reduce(ReduceOp::sum, one, "CPU:0")[0].data_ptr(), x.data_ptr());
  // The dtype of a mean does not depend on the number of replicas.
  const PerReplica<Tensor> whole({torch::ones({3}, torch::kLong)}, DeviceList{"CPU:0"});
  EXPECT_EQ(ops.reduce(ReduceOp::mean, whole, "CPU:0")[0].scalar_type(), torch::kDouble);
}

TEST_F(CrossDeviceOpsTest, AccumulationIsTyped) {
  int calls = 0;
  ReductionToOneDevice largest("CPU:1", [&](const std::vector<Tensor>& each) {
    ++calls;
    return torch::stack(each).amax(0);
  });
  const auto value =
      on_devices({torch::tensor({1.0, 8.0}, torch::requires_grad()), torch::tensor({4.0, 2.0})});
  EXPECT_THAT(numbers(largest.reduce(ReduceOp::sum, value, "CPU:0")[0]), ElementsAre(4, 8));
  EXPECT_EQ(calls, 1);
  const auto mean = largest.reduce(ReduceOp::mean, value, value);
  EXPECT_THAT(numbers(mean[1]), ElementsAre(2, 4));
  EXPECT_FALSE(mean[1].requires_grad());
  const auto integers =
      on_devices({torch::full({1}, 3, torch::kInt), torch::full({1}, 2, torch::kInt)});
  const Tensor half = largest.reduce(ReduceOp::mean, integers, "CPU:0")[0];
  EXPECT_EQ(half.scalar_type(), torch::kDouble);
  EXPECT_EQ(number(half), 1.5);
  ReductionToOneDevice nothing(std::nullopt, [](const std::vector<Tensor>&) { return Tensor(); });
  EXPECT_THAT(wrong_value([&] { nothing.reduce(ReduceOp::sum, value, value); }),
              HasSubstr("accumulation_fn"));
  EXPECT_THAT(error_of<ConfigError>(
                  Code::invalid_argument,
                  [&] { ReductionToOneDevice("GPU:7").reduce(ReduceOp::sum, value, "CPU:0"); }),
              HasSubstr("GPU:7"));
}

TEST_F(CrossDeviceOpsTest, WhatIsRefused) {
  for (const auto& [name, ops_pointer] : all_ops()) {
    CrossDeviceOps& ops = *ops_pointer;
    const auto value = on_devices({torch::ones({2}), torch::ones({2})});
    const auto one = PerReplica<Tensor>({torch::ones({2})}, DeviceList{"CPU:0"});
    for (const auto& each : {value, one}) {
      EXPECT_THAT(wrong_value([&] { ops.reduce(ReduceOp::sum, each, DeviceList{}); }),
                  HasSubstr("destinations can not be empty"))
          << name;
      // Also where a shortcut would do.
      EXPECT_THAT(wrong_value([&] {
                    ops.reduce(static_cast<ReduceOp::Value>(9), each, Destinations(each));
                  }),
                  HasSubstr("sum, mean, max or min"));
      EXPECT_THAT(error_of<ConfigError>(Code::invalid_argument,
                                        [&] { ops.reduce(ReduceOp::sum, each, "GPU:5"); }),
                  HasSubstr("GPU:5"));
    }
    EXPECT_THAT(wrong_value([&] {
                  ops.reduce(ReduceOp::sum, value, DeviceList{"CPU:0", "CPU:1", "CPU:0"});
                }),
                AllOf(HasSubstr("twice"), HasSubstr("CPU:0")));
    EXPECT_THAT(wrong_value([&] { ops.broadcast(torch::ones({}), DeviceList{}); }),
                HasSubstr("destinations can not be empty"));
    EXPECT_THAT(wrong_value([&] { ops.broadcast(Tensor(), "CPU:0"); }), HasSubstr("undefined"));
    EXPECT_THAT(ops.batch_reduce(ReduceOp::sum, {}), IsEmpty());
    EXPECT_THAT(wrong_value([&] {
                  ops.reduce(ReduceOp::sum, on_devices({torch::ones({2}), Tensor()}), "CPU:0");
                }),
                AllOf(HasSubstr("component 1"), HasSubstr("undefined")));
    if (std::string(name).ends_with("accumulation")) continue;  // it decides for itself
    const auto shapes = on_devices({torch::ones({2}), torch::ones({3})});
    EXPECT_THAT(wrong_value([&] { ops.reduce(ReduceOp::sum, shapes, shapes); }),
                AllOf(HasSubstr("component 1"), HasSubstr("[3]"), HasSubstr("[2]")));
    const auto types = on_devices({torch::ones({2}), torch::ones({2}, torch::kLong)});
    EXPECT_THAT(wrong_value([&] { ops.reduce(ReduceOp::sum, types, types); }), HasSubstr("Long"));
    const auto truths =
        on_devices({torch::ones({2}, torch::kBool), torch::ones({2}, torch::kBool)});
    EXPECT_THROW(ops.reduce(ReduceOp::sum, truths, truths), InvalidUsage) << name;
  }
}

TEST_F(CrossDeviceOpsTest, ComponentsMustBeWhereTheySay) {
  MirroredStrategy strategy([] {
    MirroredOptions options;
    options.devices = {"GPU:0", "CPU:0"};
    options.device_table =
        DeviceTable{.cpus = 2, .gpus = 1, .links = {}, .gpu_kind = DeviceTable::Gpus::real};
    return options;
  }());
  auto scope = strategy.scope();
  const PerReplica<Tensor> value({torch::ones({}), torch::ones({})}, DeviceList{"CPU:0", "GPU:0"});
  EXPECT_THAT(wrong_value([&] { ReductionToOneDevice().reduce(ReduceOp::sum, value, "CPU:0"); }),
              AllOf(HasSubstr("component 1"), HasSubstr("cuda:0"), HasSubstr("is on cpu")));
}

TEST_F(CrossDeviceOpsTest, NotInsideAStep) {
  MirroredStrategy strategy(cpus(2));
  ReductionToOneDevice ops;
  const auto value = on_devices({torch::ones({}), torch::ones({})});
  const auto words = AllOf(HasSubstr("step function"), HasSubstr("merge_call"));
  EXPECT_THAT(
      wrong_context([&] { strategy.run([&] { ops.reduce(ReduceOp::sum, value, "CPU:0"); }); }),
      words);
  EXPECT_THAT(
      wrong_context([&] { strategy.run([&] { ops.broadcast(torch::ones({}), "CPU:0"); }); }),
      words);
  EXPECT_THAT(wrong_context([&] { strategy.run([&] { ops.all_gather(value, "CPU:0"); }); }), words);
}

TEST_F(CrossDeviceOpsTest, AllGather) {
  ReductionToOneDevice ops;
  const auto value =
      on_devices({torch::tensor({{1.0, 2.0}}), torch::tensor({{3.0, 4.0}, {5.0, 6.0}})});
  const auto rows = ops.all_gather(value, value);
  for (int i = 0; i < 2; ++i) EXPECT_THAT(numbers(rows[i]), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_NE(rows[0].data_ptr(), rows[1].data_ptr());
  EXPECT_THAT(wrong_value([&] { ops.all_gather(value, "CPU:0", 1); }), HasSubstr("replica 1"));
}

/// A user's own: counts, and doubles what is reduced.
class Doubling : public CrossDeviceOps {
 public:
  int calls = 0;

 protected:
  std::vector<Mirrored<Tensor>> do_batch_reduce(ReduceOp op, std::span<const ReducePair> pairs,
                                                const CommunicationOptions& options) override {
    ++calls;
    std::vector<Mirrored<Tensor>> results;
    for (const auto& result : inner_.batch_reduce(op, pairs, options)) {
      results.push_back(broadcast(result[0] * 2, Destinations(result)));
    }
    return results;
  }

 private:
  ReductionToOneDevice inner_;
};

TEST_F(CrossDeviceOpsTest, AUsersOwnWorksInAnyStrategy) {
  const auto ops = std::make_shared<Doubling>();
  MirroredOptions options = cpus(2);
  options.cross_device_ops = ops;
  MirroredStrategy mirrored(options);
  CentralStorageOptions central;
  central.compute_devices = {"CPU:0", "CPU:1"};
  central.cross_device_ops = ops;
  CentralStorageStrategy stored(central);
  for (Strategy* strategy : std::initializer_list<Strategy*>{&mirrored, &stored}) {
    auto sums = strategy->run([](ReplicaContext& replica) {
      return Tensor(replica.all_reduce(ReduceOp::sum, torch::full({}, replica_id() + 1.0)));
    });
    EXPECT_EQ(number(sums[0]), 6);
    EXPECT_EQ(number(strategy->reduce(ReduceOp::mean, sums)), 12);
  }
  EXPECT_EQ(ops->calls, 4);
}

// The example of the r2.4 document.
TEST_F(CrossDeviceOpsTest, GivenToAStrategy) {
  MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"},
                             .cross_device_ops = std::make_shared<ReductionToOneDevice>()});
  auto ids = strategy.run([] { return torch::full({}, replica_id() + 1.0); });
  EXPECT_EQ(number(strategy.reduce(ReduceOp::sum, ids)), 3);
}

// --- Sparse. ----------------------------------------------------------------------------------

TEST_F(SparseTest, Case67DenseAndSparse) {
  const Tensor a = torch::tensor({{1.0, 2.0}, {0.0, 0.0}, {3.0, 4.0}});
  const Tensor b = torch::tensor({{0.0, 0.0}, {5.0, 6.0}, {7.0, 8.0}});
  const Tensor sa = sparse({0, 2}, torch::tensor({{1.0, 2.0}, {3.0, 4.0}}), 3);
  const Tensor sb = sparse({1, 2}, torch::tensor({{5.0, 6.0}, {7.0, 8.0}}), 3);
  for (const auto& [name, ops] : all_ops()) {
    const auto dense = on_devices({a, b});
    EXPECT_THAT(numbers(ops->reduce(ReduceOp::sum, dense, dense)[1]),
                ElementsAre(1, 2, 5, 6, 10, 12));
    const auto both = on_devices({sa, sb});
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
      const auto result = ops->reduce(op, both, both);
      ASSERT_EQ(result.size(), 2);
      for (int i = 0; i < 2; ++i) {
        EXPECT_TRUE(result[i].is_sparse()) << name;
        EXPECT_THAT(numbers(result[i]._indices()), ElementsAre(0, 2, 1, 2));
        const double n = op == ReduceOp::mean ? 2 : 1;
        EXPECT_TRUE(torch::equal(result[i].to_dense() * n, a + b));
      }
    }
    const auto mixed = on_devices({sa, b});
    const auto total = ops->reduce(ReduceOp::mean, mixed, mixed);
    EXPECT_FALSE(total[0].is_sparse());
    EXPECT_THAT(numbers(total[1]), ElementsAre(0.5, 1, 2.5, 3, 5, 6));
    const auto half = on_devices({sa, sparse({}, torch::empty({0, 2}), 3)});
    EXPECT_THAT(numbers(ops->reduce(ReduceOp::mean, half, "CPU:0")[0].to_dense()),
                ElementsAre(0.5, 1, 0, 0, 1.5, 2));
  }
}

TEST_F(SparseTest, DuplicatesAreMergedWithinAReplicaOnly) {
  const Tensor twice = sparse({2, 0, 2}, torch::tensor({{1.0}, {2.0}, {4.0}}), 3);
  const Tensor once = sparse({2}, torch::tensor({{8.0}}), 3);
  const auto value = on_devices({twice, once});
  const Tensor sum = ReductionToOneDevice().reduce(ReduceOp::sum, value, "CPU:0")[0];
  EXPECT_THAT(numbers(sum._indices()), ElementsAre(0, 2, 2));
  EXPECT_THAT(numbers(sum._values()), ElementsAre(2, 5, 8));
  const auto integers = on_devices({sparse({1}, torch::full({1, 1}, 3, torch::kLong), 2),
                                    sparse({1}, torch::full({1, 1}, 4, torch::kLong), 2)});
  const Tensor mean = ReductionToOneDevice().reduce(ReduceOp::mean, integers, "CPU:0")[0];
  EXPECT_EQ(mean.scalar_type(), torch::kDouble);
  EXPECT_THAT(numbers(mean._values()), ElementsAre(1.5, 2));
}

// --- All-reduce. ------------------------------------------------------------------------------

TEST_F(AllReduceOpsTest, OptionsAreChecked) {
  EXPECT_THAT(wrong_value([] { AllReduceCrossDeviceOps({.all_reduce_alg = "ring"}); }),
              AllOf(HasSubstr("ring"), HasSubstr("nccl, hierarchical_copy")));
  EXPECT_THAT(wrong_value([] { AllReduceCrossDeviceOps({.num_packs = -1}); }),
              HasSubstr("num_packs"));
  EXPECT_THAT(wrong_value([] {
                AllReduceCrossDeviceOps({.num_packs = 0, .agg_small_grads_max_bytes = -1});
              }),
              HasSubstr("agg_small_grads_max_bytes"));
  EXPECT_THAT(wrong_value([] {
                AllReduceCrossDeviceOps({.num_packs = 0, .agg_small_grads_max_group = -5});
              }),
              HasSubstr("agg_small_grads_max_group"));
  EXPECT_THAT(wrong_value([] { NcclAllReduce(-1); }), HasSubstr("num_packs"));
  EXPECT_EQ(AllReduceCrossDeviceOps().options().num_packs, 1);
  EXPECT_EQ(AllReduceCrossDeviceOps().options().all_reduce_alg, AllReduceAlgorithm::nccl);
}

TEST_F(AllReduceOpsTest, WithoutNcclThereIsOneLineInTheLog) {
  NcclAllReduce ops;
  const auto value = on_devices({torch::ones({2}), torch::ones({2})});
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(numbers(ops.reduce(ReduceOp::sum, value, value)[1]), ElementsAre(2, 2));
  }
  EXPECT_THAT(log(), ElementsAre(AllOf(HasSubstr("nccl"), HasSubstr("ReductionToOneDevice"))));
}

TEST_F(AllReduceOpsTest, DestinationsInAnotherOrder) {
  HierarchicalCopyAllReduce ops(3);
  const auto value = on_devices({torch::full({}, 1.0), torch::full({}, 2.0), torch::full({}, 4.0)});
  const DeviceList turned = {"CPU:2", "CPU:0", "CPU:1"};
  const auto result = ops.reduce(ReduceOp::sum, value, turned);
  EXPECT_EQ(result.devices(), turned);
  EXPECT_THAT(numbers(result), ElementsAre(7, 7, 7));
}

std::vector<std::vector<int>> dgx1(bool with_self) {
  std::vector<std::vector<int>> links = {{1, 2, 3, 4}, {0, 2, 3, 5}, {3, 1, 0, 6}, {0, 1, 2, 7},
                                         {0, 5, 6, 7}, {1, 4, 6, 7}, {2, 4, 5, 7}, {3, 4, 5, 6}};
  if (with_self) {
    for (std::size_t i = 0; i < links.size(); ++i) links[i].push_back(static_cast<int>(i));
  }
  return links;
}

DeviceList gpus(int count) {
  DeviceList list;
  for (int i = 0; i < count; ++i) list.emplace_back("GPU:" + std::to_string(i));
  return list;
}

TEST_F(AllReduceOpsTest, Case68ChosenByLinks) {
  const auto chosen = [](const DeviceList& list, const DeviceTable& table) {
    const auto ops = choose_cross_device_ops(list, table);
    const auto* all = dynamic_cast<const AllReduceCrossDeviceOps*>(ops.get());
    if (all == nullptr) return std::string("one device");
    return std::string(all->options().all_reduce_alg == AllReduceAlgorithm::nccl ? "nccl "
                                                                                 : "copy ") +
           std::to_string(all->options().num_packs);
  };
  EXPECT_EQ(chosen(gpus(8), {.cpus = 1, .gpus = 8, .links = dgx1(false)}), "copy 8");
  EXPECT_EQ(chosen(gpus(8), {.cpus = 1, .gpus = 8, .links = dgx1(true)}), "copy 8");
  auto four = dgx1(false);
  four.resize(4);
  EXPECT_EQ(chosen(gpus(4), {.cpus = 1, .gpus = 4, .links = four}), "nccl 1");
  auto rotated = dgx1(false);
  std::rotate(rotated.begin(), rotated.begin() + 1, rotated.end());
  EXPECT_EQ(chosen(gpus(8), {.cpus = 1, .gpus = 8, .links = rotated}), "nccl 1");
  EXPECT_EQ(chosen(gpus(8), {.cpus = 1, .gpus = 8}), "nccl 1");
  EXPECT_EQ(chosen(gpus(8), {.cpus = 1, .gpus = 4}), "one device");
  EXPECT_EQ(chosen({"CPU:0", "GPU:0"}, {.cpus = 1, .gpus = 1}), "one device");
}

TEST_F(AllReduceOpsTest, ConfigureChoosesUnlessTheUserDid) {
  MirroredOptions options;
  options.devices = gpus(8);
  options.device_table = DeviceTable{.cpus = 1, .gpus = 8, .links = dgx1(false)};
  const auto sums_of = [](MirroredStrategy& strategy) {
    DistributionStrategy(strategy).configure();
    auto ids = strategy.run([] { return torch::full({}, replica_id() * 1.0); });
    return numbers(strategy.reduce_to(ReduceOp::sum, ids, Destinations(ids)));
  };
  MirroredStrategy chosen(options);
  EXPECT_THAT(sums_of(chosen), ::testing::Each(28.0));
  const auto* ops = dynamic_cast<const AllReduceCrossDeviceOps*>(&chosen.core().ops());
  ASSERT_NE(ops, nullptr);
  EXPECT_EQ(ops->options().all_reduce_alg, AllReduceAlgorithm::hierarchical_copy);
  EXPECT_EQ(ops->options().num_packs, 8);
  const auto own = std::make_shared<Doubling>();
  options.cross_device_ops = own;
  MirroredStrategy given(options);
  EXPECT_THAT(sums_of(given), ::testing::Each(56.0));
  EXPECT_EQ(own->calls, 1);
}

}  // namespace
}  // namespace lockstep
