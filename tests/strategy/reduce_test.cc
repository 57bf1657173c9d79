// The verbs across replicas: reduce and its arithmetic, copies, gather, fetch, update.
#include <array>
#include <limits>

#include "fixtures.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Verbs : ::testing::Test {
  MirroredStrategy strategy{cpus(2)};

  PerReplica<Tensor> each(const Tensor& first, const Tensor& second) {
    return {{first, second}, strategy.worker_devices()};
  }
  PerReplica<Tensor> scalars(double first, double second) {
    return each(torch::full({}, first), torch::full({}, second));
  }
  Variable make(double initial) {
    auto scope = strategy.scope();
    return variable("v", initial);
  }
};
using ReduceTest = Verbs;
using CopyTest = Verbs;
using UpdateTest = Verbs;

TEST_F(ReduceTest, ElementByElement) {
  const auto value = each(torch::tensor({1.0F, 2.0F}), torch::tensor({3.0F, 5.0F}));
  EXPECT_THAT(numbers(strategy.reduce(ReduceOp::sum, value)), ElementsAre(4, 7));
  EXPECT_THAT(numbers(strategy.reduce(ReduceOp::mean, value)), ElementsAre(2, 3.5));
  EXPECT_THAT(numbers(strategy.reduce("Mean", value)), ElementsAre(2, 3.5));
  EXPECT_EQ(strategy.reduce("SUM", value).scalar_type(), torch::kFloat);
  EXPECT_THAT(numbers(value[0]), ElementsAre(1, 2));  // left alone
}

TEST_F(ReduceTest, OpsAreChecked) {
  EXPECT_THAT(wrong_value([&] { strategy.reduce("median", scalars(1, 2)); }), HasSubstr("median"));
  EXPECT_THAT(wrong_value([&] { strategy.reduce(static_cast<ReduceOp::Value>(7), scalars(1, 2)); }),
              HasSubstr("sum, mean, max or min"));
}

TEST_F(ReduceTest, ShapesAndCountsAreChecked) {
  EXPECT_THROW(strategy.reduce(ReduceOp::sum, each(torch::ones({2}), torch::ones({3}))),
               InvalidUsage);
  const PerReplica<Tensor> one({torch::ones({})}, DeviceList{"CPU:0"});
  EXPECT_THAT(wrong_value([&] { strategy.reduce(ReduceOp::sum, one); }),
              AllOf(HasSubstr("1 component"), HasSubstr("2 replicas")));
  EXPECT_THAT(wrong_value([&] { strategy.gather(one); }), HasSubstr("2 replicas"));
}

TEST_F(ReduceTest, Case129AlongAnAxis) {
  const auto rows = each(torch::tensor({1.0F, 2.0F}), torch::tensor({1.0F, 2.0F}));
  EXPECT_EQ(number(strategy.reduce(ReduceOp::mean, rows, along(0))), 1.5);
  EXPECT_EQ(number(strategy.reduce(ReduceOp::sum, rows, along(0))), 6);
}

TEST_F(ReduceTest, TheMeanAlongAnAxisCountsRows) {
  const auto uneven = each(torch::tensor({1.0, 2.0, 6.0}), torch::tensor({11.0}));
  EXPECT_EQ(number(strategy.reduce(ReduceOp::mean, uneven, along(0))), 5);
  EXPECT_EQ(number(strategy.reduce(ReduceOp::mean, uneven, along(-1))), 5);
  const auto none = each(torch::tensor({1.0, 3.0}), torch::empty({0}, torch::kDouble));
  EXPECT_EQ(number(strategy.reduce(ReduceOp::mean, none, along(0))), 2);
  const auto empty = each(torch::empty({0}), torch::empty({0}));
  EXPECT_TRUE(std::isnan(number(strategy.reduce(ReduceOp::mean, empty, along(0)))));
  EXPECT_EQ(number(strategy.reduce(ReduceOp::sum, empty, along(0))), 0);
  const auto matrix = each(torch::tensor({{1.0, 2.0}, {3.0, 4.0}}), torch::tensor({{5.0, 6.0}}));
  EXPECT_THAT(numbers(strategy.reduce(ReduceOp::mean, matrix, along(0))), ElementsAre(3, 4));
}

TEST_F(ReduceTest, SeveralAxes) {
  const auto value = each(torch::ones({2, 3}), torch::ones({4, 3}));
  const std::array<std::int64_t, 2> both = {0, -1};
  EXPECT_EQ(number(strategy.reduce(ReduceOp::sum, value, both)), 18);
  EXPECT_THAT(wrong_value([&] { strategy.reduce(ReduceOp::mean, value, both); }),
              HasSubstr("one axis"));
}

TEST_F(ReduceTest, AxesAreChecked) {
  const auto value = each(torch::ones({2}), torch::ones({2}));
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
    EXPECT_THAT(wrong_value([&] { strategy.reduce(op, value, along(1)); }), HasSubstr("axis 1"));
    EXPECT_THAT(wrong_value([&] { strategy.reduce(op, value, along(-2)); }), HasSubstr("axis -2"));
    EXPECT_THAT(wrong_value([&] { strategy.reduce(op, scalars(1, 2), along(0)); }),
                HasSubstr("axis 0"));
  }
}

TEST_F(ReduceTest, MeansOfIntegersAreFloating) {
  const std::pair<at::ScalarType, at::ScalarType> cases[] = {{torch::kByte, torch::kFloat},
                                                             {torch::kChar, torch::kFloat},
                                                             {torch::kShort, torch::kFloat},
                                                             {torch::kInt, torch::kDouble},
                                                             {torch::kLong, torch::kDouble}};
  for (const auto& [from, to] : cases) {
    const auto value = each(torch::full({1}, 1, from), torch::full({1}, 2, from));
    for (const Tensor& mean : {strategy.reduce(ReduceOp::mean, value),
                               strategy.reduce(ReduceOp::mean, value, along(0))}) {
      EXPECT_EQ(number(mean), 1.5);
      EXPECT_EQ(mean.scalar_type(), to) << from;
    }
    EXPECT_EQ(strategy.reduce(ReduceOp::sum, value).scalar_type(), from);
    EXPECT_EQ(strategy.reduce(ReduceOp::sum, value, along(0)).scalar_type(), from);
  }
}

TEST_F(ReduceTest, TheSumBehindAMeanOfIntegersDoesNotWrap) {
  const auto value = each(torch::full({2}, 120, torch::kChar), torch::full({2}, 120, torch::kChar));
  EXPECT_EQ(number(strategy.reduce(ReduceOp::mean, value, along(0))), 120);
}

TEST_F(ReduceTest, PlainValues) {
  EXPECT_EQ(number(strategy.reduce(ReduceOp::sum, 0)), 0);
  EXPECT_EQ(number(strategy.reduce(ReduceOp::mean, 0.0)), 0);
  EXPECT_EQ(number(strategy.reduce(ReduceOp::mean, 5)), 5);
  const Tensor tensor = torch::ones({2});
  EXPECT_TRUE(strategy.reduce(ReduceOp::mean, tensor).is_same(tensor));
  const auto words = AllOf(HasSubstr("non-DistributedValues"), HasSubstr("SUM"));
  EXPECT_THAT(wrong_value([&] { strategy.reduce(ReduceOp::sum, 5); }), words);
  EXPECT_THAT(wrong_value([&] { strategy.reduce(ReduceOp::sum, tensor); }), words);
  EXPECT_THAT(wrong_value([&] { strategy.reduce(ReduceOp::sum, torch::zeros({})); }), words);
  MirroredStrategy one(cpus(1));
  EXPECT_EQ(number(one.reduce(ReduceOp::sum, 5)), 5);
  EXPECT_THAT(numbers(one.reduce(ReduceOp::sum, tensor)), ElementsAre(1, 1));
}

TEST_F(ReduceTest, PlainValuesToDestinations) {
  const Variable v = make(0);
  const Tensor tensor = torch::full({}, 4.0);
  EXPECT_THAT(numbers(strategy.reduce_to(ReduceOp::mean, tensor, v)), ElementsAre(4, 4));
  EXPECT_THAT(numbers(strategy.reduce_to(ReduceOp::sum, 0, v)), ElementsAre(0, 0));
  EXPECT_THAT(wrong_value([&] { strategy.reduce_to(ReduceOp::sum, tensor, v); }),
              HasSubstr("non-DistributedValues"));
  EXPECT_THAT(wrong_value([&] { strategy.reduce_to(ReduceOp::sum, 3, "CPU:0"); }),
              HasSubstr("non-DistributedValues"));
  MirroredStrategy one(cpus(1));
  EXPECT_EQ(number(one.reduce_to(ReduceOp::sum, tensor, "CPU:1").get("CPU:1")), 4);
  EXPECT_EQ(number(one.reduce_to(ReduceOp::sum, 3, "CPU:0").single()), 3);
}

TEST_F(ReduceTest, NumbersAndStructs) {
  auto ids = strategy.run([] { return replica_id() + 1; });
  EXPECT_EQ(number(strategy.reduce(ReduceOp::sum, ids)), 3);
  EXPECT_EQ(number(strategy.reduce(ReduceOp::mean, ids)), 1.5);
  struct Losses {
    Tensor image;
    std::vector<Tensor> text;
    static auto lockstep_members() { return std::tuple(&Losses::image, &Losses::text); }
  };
  auto losses = strategy.run([] {
    return Losses{torch::full({}, 1.0 + replica_id()), {torch::full({}, 10.0 + replica_id())}};
  });
  const Losses mean = strategy.reduce(ReduceOp::mean, losses);
  EXPECT_EQ(number(mean.image), 1.5);
  EXPECT_EQ(number(mean.text.at(0)), 10.5);
  EXPECT_THAT(numbers(field(losses, &Losses::image)), ElementsAre(1, 2));
}

TEST_F(ReduceTest, NotRecordedForAutograd) {
  const Tensor x = torch::ones({2}, torch::requires_grad());
  for (const Tensor& result :
       {strategy.reduce(ReduceOp::sum, each(x, x)), strategy.reduce(ReduceOp::mean, each(x, x)),
        strategy.reduce(ReduceOp::mean, each(x, x), along(0)), strategy.gather(each(x, x))}) {
    EXPECT_FALSE(result.requires_grad());
  }
}

TEST_F(ReduceTest, ToDestinations) {
  const Variable v = make(0);
  const Colocated<Tensor> there = strategy.reduce_to(ReduceOp::sum, scalars(1, 2), v);
  EXPECT_THAT(numbers(there), ElementsAre(3, 3));
  EXPECT_EQ(there.devices(), v.devices());
  const Mirrored<Tensor> one = strategy.reduce_to(ReduceOp::mean, scalars(1, 2), "CPU:1");
  EXPECT_EQ(number(one.single()), 1.5);
  EXPECT_EQ(one.devices(), DeviceList{"CPU:1"});
  const auto all = strategy.reduce_to(ReduceOp::sum, scalars(1, 2), DeviceList{"CPU:0", "CPU:5"});
  EXPECT_EQ(number(all.get("CPU:5")), 3);
  EXPECT_THAT(wrong_value([&] { strategy.reduce_to(ReduceOp::sum, scalars(1, 2), DeviceList{}); }),
              HasSubstr("destinations can not be empty"));
}

TEST_F(ReduceTest, ManyAtOnce) {
  const Variable v = make(0);
  std::vector<std::pair<PerReplica<Tensor>, Variable>> pairs;
  for (int i = 0; i < 20; ++i) {
    pairs.emplace_back(each(torch::full({i}, 1.0), torch::full({i}, 2.0)), v);
  }
  const auto results = strategy.batch_reduce_to(ReduceOp::sum, pairs);
  ASSERT_EQ(results.size(), 20);
  for (int i = 0; i < 20; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    EXPECT_TRUE(torch::equal(result[0], torch::full({i}, 3.0))) << i;
    EXPECT_TRUE(torch::equal(result[1], result[0])) << i;
  }
  const std::vector<ReducePair> mixed = {{scalars(1, 3), "CPU:0"}, {scalars(5, 7), v}};
  const auto two = strategy.batch_reduce_to(ReduceOp::mean, mixed);
  EXPECT_THAT(numbers(two.at(0)), ElementsAre(2));
  EXPECT_THAT(numbers(two.at(1)), ElementsAre(6, 6));
  EXPECT_THAT(strategy.batch_reduce_to(ReduceOp::sum, std::span<const ReducePair>()), IsEmpty());
}

// --- Copies. ----------------------------------------------------------------------------------

TEST_F(CopyTest, Broadcast) {
  const Tensor tensor = torch::tensor({1.0, 2.0}, torch::requires_grad());
  const Mirrored<Tensor> everywhere = strategy.broadcast(tensor);
  EXPECT_EQ(everywhere.devices(), strategy.worker_devices());
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(torch::equal(everywhere[i], tensor));
    EXPECT_NE(everywhere[i].data_ptr(), tensor.data_ptr());
    EXPECT_FALSE(everywhere[i].requires_grad());
  }
  EXPECT_NE(everywhere[0].data_ptr(), everywhere[1].data_ptr());
  const Colocated<Tensor> with = strategy.broadcast(tensor, make(0));
  EXPECT_EQ(with.size(), 2);
  EXPECT_EQ(strategy.broadcast(tensor, "CPU:1").single().numel(), 2);
}

TEST_F(CopyTest, Gather) {
  const auto rows = each(torch::tensor({{1.0, 2.0}}), torch::tensor({{3.0, 4.0}, {5.0, 6.0}}));
  EXPECT_THAT(numbers(strategy.gather(rows)), ElementsAre(1, 2, 3, 4, 5, 6));
  const auto columns = each(torch::tensor({{1.0}, {2.0}}), torch::tensor({{3.0}, {4.0}}));
  EXPECT_THAT(numbers(strategy.gather(columns, 1)), ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(numbers(strategy.gather(columns, -1)), ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(wrong_value([&] { strategy.gather(rows, 1); }),
              AllOf(HasSubstr("[1, 2]"), HasSubstr("[2, 2]"), HasSubstr("replica 1")));
  EXPECT_THAT(wrong_value([&] { strategy.gather(rows, 2); }), HasSubstr("axis 2"));
  EXPECT_THAT(wrong_value([&] { strategy.gather(scalars(1, 2)); }), HasSubstr("axis 0"));
  EXPECT_THAT(
      wrong_value([&] { strategy.gather(each(torch::ones({1}), torch::ones({1}, torch::kLong))); }),
      HasSubstr("Long"));
}

TEST_F(CopyTest, AllGatherInsideAStep) {
  auto gathered = strategy.run([](ReplicaContext& replica) {
    Tensor own = torch::full({replica_id() + 1, 1}, replica_id() + 1.0, torch::requires_grad());
    const Tensor all = replica.all_gather(own);
    // Row k of the whole counts k + 1, on every replica.
    const Tensor weights = torch::arange(1, 4).view({3, 1}) * (replica_id() + 1.0);
    (all * weights).sum().backward();
    return std::pair(Tensor(all.detach()), own.grad());
  });
  for (int i = 0; i < 2; ++i) EXPECT_THAT(numbers(gathered.first[i]), ElementsAre(1, 2, 2));
  EXPECT_THAT(numbers(gathered.second[0]), ElementsAre(3));
  EXPECT_THAT(numbers(gathered.second[1]), ElementsAre(6, 9));
}

TEST_F(CopyTest, Fetch) {
  const Variable v = make(2);
  v[1].assign(3);
  EXPECT_EQ(number(strategy.fetch(v)), 2);
  EXPECT_EQ(number(strategy.fetch(v, "CPU:1")), 3);
  EXPECT_EQ(number(strategy.fetch(v, "CPU:7")), 2);
  std::string source;
  const auto twice = [&](const Tensor& x) {
    source = current_device();
    return x * 2;
  };
  EXPECT_EQ(number(strategy.fetch(v, "CPU:1", twice)), 6);
  EXPECT_EQ(source, Device("CPU:1").str());
  EXPECT_EQ(number(strategy.fetch(torch::ones({}), "CPU:1", twice)), 2);
  EXPECT_EQ(source, Device("CPU:0").str());
  EXPECT_EQ(number(strategy.fetch(strategy.broadcast(torch::ones({})))), 1);
  EXPECT_EQ(number(strategy.fetch(strategy.reduce_to(ReduceOp::sum, scalars(1, 2), v))), 3);
  // A copy, not the variable's own memory.
  strategy.fetch(v).zero_();
  EXPECT_EQ(number(v.read()), 2);
  expect_outside();
}

TEST_F(CopyTest, GroupIsDone) {
  coll::Work work = strategy.group(strategy.broadcast(torch::ones({})), "all");
  EXPECT_TRUE(work.done());
  work.wait();
}

TEST_F(CopyTest, ResultsLandOnTheCurrentDevice) {
  MirroredStrategy gpus(on({"GPU:0", "GPU:1"}));
  // Emulated devices share memory with the CPU; what can be seen is which copy is read.
  const auto value = gpus.broadcast(torch::ones({}));
  const DeviceScope second("GPU:1");
  EXPECT_EQ(value.any().data_ptr(), value[1].data_ptr());
  EXPECT_EQ(number(gpus.reduce(ReduceOp::sum, gpus.run([] { return torch::ones({}); }))), 2);
  EXPECT_THAT(error_of<ConfigError>(Code::invalid_argument,
                                    [&] { gpus.broadcast(torch::ones({}), DeviceList{"GPU:3"}); }),
              HasSubstr("GPU:3"));
}

// --- Updates. ---------------------------------------------------------------------------------

TEST_F(UpdateTest, EveryCopyWithItsArguments) {
  const Variable v = make(1);
  const Variable w = make(0);
  w[1].assign(100);
  const auto reduced = strategy.reduce_to(ReduceOp::sum, scalars(1, 2), v);
  const auto result = strategy.update(
      v,
      [](Component& copy, const Tensor& colocated, const Tensor& mirrored, const Component& other,
         double plain, const std::vector<Tensor>& nest) {
        EXPECT_EQ(current_device(), copy.device().str());
        copy.assign(colocated + mirrored + other + plain + nest.at(0));
        return number(copy);
      },
      reduced, strategy.broadcast(torch::full({}, 10.0)), w, 0.5,
      std::vector{strategy.broadcast(torch::full({}, 1000.0))});
  EXPECT_THAT(local_results(result), ElementsAre(1013.5, 1113.5));
  EXPECT_EQ(result.devices(), v.devices());
  EXPECT_THAT(numbers(v), ElementsAre(1013.5, 1113.5));
}

TEST_F(UpdateTest, ArgumentsMustLiveWhereTheVariableDoes) {
  const Variable v = make(1);
  EXPECT_THAT(wrong_value([&] {
                strategy.update(
                    v, [](Component&, const Tensor&) {},
                    strategy.broadcast(torch::ones({}), "CPU:0"));
              }),
              AllOf(HasSubstr("Mirrored"), HasSubstr("no component on"), HasSubstr("CPU:1")));
  auto scope = strategy.scope();
  const Variable elsewhere = [&] {
    auto there = strategy.colocate_vars_with("CPU:0");
    return variable("elsewhere", 1.0);
  }();
  EXPECT_THAT(wrong_value([&] {
                strategy.update(
                    v, [](Component&, const Tensor&) {}, elsewhere);
              }),
              HasSubstr("not found"));
}

TEST_F(UpdateTest, IsNotRecordedAndItsErrorsArrive) {
  auto scope = strategy.scope();
  const Variable v = variable("v", 1.0, {.trainable = true});
  strategy.update(v, [](Component& copy) {
    EXPECT_FALSE(at::GradMode::is_enabled());
    copy.mul_(3);
  });
  EXPECT_THAT(numbers(v), ElementsAre(3, 3));
  EXPECT_THROW(strategy.update(v,
                               [](Component& copy) {
                                 if (copy.index() == 1) throw std::out_of_range("copy 1");
                               }),
               std::out_of_range);
  EXPECT_TRUE(in_cross_replica_context());
  strategy.update(v, [](Component& copy) { copy.assign(1); });
  EXPECT_THAT(numbers(v), ElementsAre(1, 1));
}

TEST_F(UpdateTest, OfAVariableOnOneDevice) {
  auto scope = strategy.scope();
  auto there = strategy.colocate_vars_with("CPU:1");
  const Variable v = variable("v", 1.0, {.aggregation = Aggregation::sum});
  strategy.run([&] {
    EXPECT_EQ(number(v.read()), 1);
    v.assign_add(torch::ones({}));
  });
  EXPECT_THAT(numbers(v), ElementsAre(3));
}

TEST_F(UpdateTest, ABatchIsEachVariableWithItsOwnArguments) {
  const std::vector<Variable> weights{make(1), make(2)};
  const std::vector<Variable> velocities{make(10), make(20)};
  std::vector<std::pair<PerReplica<Tensor>, Variable>> gradients;
  for (const Variable& w : weights) gradients.emplace_back(scalars(100, 200), w);
  strategy.batch_update(
      weights,
      [](Component& w, const Component& v, const Tensor& gradient) {
        EXPECT_EQ(current_device(), w.device().str());
        EXPECT_FALSE(at::GradMode::is_enabled());
        w.assign(w + v + gradient);
      },
      velocities, strategy.batch_reduce_to(ReduceOp::sum, gradients));
  EXPECT_THAT(numbers(weights[0]), ElementsAre(311, 311));
  EXPECT_THAT(numbers(weights[1]), ElementsAre(322, 322));
}

TEST_F(UpdateTest, ABatchMayLiveOnSeveralSetsOfDevices) {
  auto scope = strategy.scope();
  const Variable alone = [&] {
    auto there = strategy.colocate_vars_with("CPU:1");
    return variable("alone", 1.0);
  }();
  std::vector<int> copies(3);
  strategy.batch_update(
      {make(0), alone, make(0)},
      [&](Component& w, int k) {
        if (w.index() == 0) copies[k] = 1;
      },
      std::vector<int>{0, 1, 2});
  EXPECT_THAT(copies, ElementsAre(1, 1, 1));
  strategy.batch_update({}, [](Component&) { FAIL() << "nothing to update"; });
}

TEST_F(UpdateTest, ABatchWithListsOfOtherLengthsIsRefusedBeforeAnythingIsWritten) {
  const Variable v = make(1);
  EXPECT_THAT(wrong_value([&] {
                strategy.batch_update(
                    {v, v}, [](Component& copy, int) { copy.assign(7); }, std::vector<int>{1});
              }),
              AllOf(HasSubstr("2 variables"), HasSubstr("list of 1")));
  EXPECT_THAT(numbers(v), ElementsAre(1, 1));
  MirroredStrategy other(on({"CPU:0", "CPU:1"}));
  EXPECT_THAT(error_of<InvalidUsage>(Code::failed_precondition,
                                     [&] { other.batch_update({v}, [](Component&) {}); }),
              HasSubstr("Mixing different Strategy objects"));
}

TEST_F(UpdateTest, NonSlot) {
  auto scope = strategy.scope();
  const Variable v = variable("v", 1.0);
  EXPECT_EQ(strategy.non_slot_devices({v}).devices, strategy.worker_devices());
  const NonSlotVariable power = strategy.non_slot_variable("beta", torch::full({}, 0.5), {v});
  EXPECT_EQ(power.variable().devices(), strategy.worker_devices());
  const auto where = strategy.non_slot_devices({v});
  const NonSlot<double> result = strategy.update_non_slot(
      where,
      [](const Component& own, const Tensor& mirrored, double plain) {
        own.assign(own * mirrored + plain);
        return number(own);
      },
      power, strategy.broadcast(torch::full({}, 3.0)), 1.0);
  EXPECT_THAT(local_results(result), ElementsAre(2.5, 2.5));
  EXPECT_EQ(number(power.read()), 2.5);
  EXPECT_EQ(number(power + 1), 3.5);
  // What one call gave, the next can take.
  strategy.update_non_slot(
      where, [](double x) { EXPECT_EQ(x, 2.5); }, result);
  EXPECT_THAT(wrong_value([&] { strategy.update_non_slot(NonSlotDevices{}, [] {}); }),
              HasSubstr("no devices"));
}

TEST_F(UpdateTest, NonSlotDevicesOfTheDefaultStrategy) {
  const Variable b = variable("b", 1.0);
  const Variable a = [] {
    const DeviceScope there("CPU:1");
    return variable("a", 1.0);
  }();
  EXPECT_EQ(get_strategy().non_slot_devices({b, a}).devices, DeviceList{"CPU:1"});
  EXPECT_THAT(wrong_value([] { static_cast<void>(get_strategy().non_slot_devices({})); }),
              HasSubstr("smallest name"));
}

}  // namespace
}  // namespace lockstep
