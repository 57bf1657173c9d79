// Mirrored variables: creation, reading, writing in each context, literals, scatter, save/restore.
#include <sstream>

#include "fixtures.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class MirroredVariables : public ::testing::TestWithParam<Execution> {
 protected:
  Variable make(double initial, Aggregation aggregation = Aggregation::none) {
    auto scope = strategy.scope();
    return variable("v", initial, {.aggregation = aggregation});
  }
  MirroredStrategy strategy{cpus(2, GetParam())};
};

INSTANTIATE_TEST_SUITE_P(Executions, MirroredVariables,
                         ::testing::Values(Execution::concurrent, Execution::sequential));

TEST_P(MirroredVariables, Case35AssignWithoutAggregation) {
  const Variable v = make(1);
  const std::string message = wrong_value([&] { strategy.run([&] { v.assign(5.0); }); });
  EXPECT_THAT(message, AllOf(HasSubstr("assign"), HasSubstr("variable v"),
                             HasSubstr("assign_local"), HasSubstr("only_first_replica")));
  EXPECT_THAT(numbers(v), ElementsAre(1, 1));
  strategy.run([&] { EXPECT_EQ(number(v.assign_local(5.0)), 5); });
  EXPECT_THAT(numbers(v), ElementsAre(5, 5));
}

TEST_P(MirroredVariables, AssignLocalWritesOneCopy) {
  const Variable v = make(1, Aggregation::sum);
  strategy.run([&] {
    if (replica_id() == 1) v.assign_local(torch::full({}, 9));
  });
  EXPECT_THAT(numbers(v), ElementsAre(1, 9));
  EXPECT_THAT(wrong_context([&] { v.assign_local(1); }), HasSubstr("use assign"));
}

TEST_P(MirroredVariables, Case36SumOfTheSameLiteral) {
  const Variable v = make(1, Aggregation::sum);
  EXPECT_THAT(wrong_value([&] { strategy.run([&] { v.assign(5.0); }); }),
              HasSubstr("non-DistributedValues value 5.0 cannot be reduced with the given reduce "
                        "op SUM"));
  EXPECT_THAT(wrong_value([&] { strategy.run([&] { v.assign_add(5); }); }),
              HasSubstr("value 5 cannot be reduced"));
  EXPECT_THAT(numbers(v), ElementsAre(1, 1));
}

TEST_P(MirroredVariables, LiteralZeroStaysZero) {
  const Variable v = make(1, Aggregation::sum);
  strategy.run([&] { v.assign_add(0); });
  EXPECT_THAT(numbers(v), ElementsAre(1, 1));
  strategy.run([&] { v.assign(0.0); });
  EXPECT_THAT(numbers(v), ElementsAre(0, 0));
}

TEST_P(MirroredVariables, DifferingLiteralsArePerReplicaTensors) {
  const Variable sum = make(1, Aggregation::sum);
  const Variable mean = make(1, Aggregation::mean);
  const Variable first = make(1, Aggregation::only_first_replica);
  strategy.run([&] {
    sum.assign(2 + replica_id());
    mean.assign_add(2.0 + replica_id());
    first.assign_sub(2 + replica_id());
  });
  EXPECT_THAT(numbers(sum), ElementsAre(5, 5));
  EXPECT_THAT(numbers(mean), ElementsAre(3.5, 3.5));
  EXPECT_THAT(numbers(first), ElementsAre(-1, -1));
}

TEST_P(MirroredVariables, Case38MeanOfTheSameLiteral) {
  const Variable v = make(1, Aggregation::mean);
  strategy.run([&] { EXPECT_EQ(number(v.assign_add(5)), 6); });
  EXPECT_THAT(numbers(v), ElementsAre(6, 6));
  strategy.run([&] { EXPECT_EQ(number(v.assign(5)), 5); });
  EXPECT_THAT(numbers(v), ElementsAre(5, 5));
  strategy.run([&] { EXPECT_EQ(number(v.assign_sub(1)), 4); });
  EXPECT_THAT(numbers(v), ElementsAre(4, 4));
}

TEST_P(MirroredVariables, Case39AcrossReplicas) {
  const Variable v = make(1);
  const Variable w = make(5);
  auto scope = strategy.scope();
  EXPECT_EQ(number(v.assign_add(6)), 7);
  EXPECT_THAT(numbers(v), ElementsAre(7, 7));
  v.assign_add(torch::full({}, 2));
  EXPECT_THAT(numbers(v), ElementsAre(9, 9));
  EXPECT_EQ(number(w.assign_sub(2)), 3);
  EXPECT_THAT(numbers(w), ElementsAre(3, 3));
  EXPECT_EQ(number(w.assign(6)), 6);
  EXPECT_EQ(number(w.assign(strategy.broadcast(torch::full({}, 8)))), 8);
  EXPECT_EQ(number(w.assign_add(strategy.broadcast(torch::full({}, 1)))), 9);
  EXPECT_EQ(number(w.assign_sub(strategy.broadcast(torch::full({}, 3)))), 6);
  EXPECT_THAT(numbers(w), ElementsAre(6, 6));
}

TEST_P(MirroredVariables, Case40TensorsOfEveryReplica) {
  const std::pair<Aggregation, double> cases[] = {
      {Aggregation::sum, 4}, {Aggregation::mean, 2}, {Aggregation::only_first_replica, 2}};
  for (const auto& [aggregation, expected] : cases) {
    const auto twos =
        strategy.distribute_values_from_function([](ValueContext) { return torch::full({}, 2.0); });
    const auto check = [&, expected = expected](const Variable& v, const auto& write) {
      auto results = strategy.run(write, twos);
      EXPECT_THAT(numbers(results), ElementsAre(expected, expected));
      EXPECT_THAT(numbers(v), ElementsAre(expected, expected));
    };
    const Variable a = make(0, aggregation);
    check(a, [&](const Tensor& x) { return a.assign(x).clone(); });
    const Variable b = make(0, aggregation);
    check(b, [&](const Tensor& x) { return b.assign_add(x).clone(); });
    const Variable c = make(0, aggregation);
    check(c, [&](const Tensor& x) { return c.assign_sub(-x).clone(); });
  }
}

TEST_P(MirroredVariables, Case42OutsideOfAScope) {
  const Variable v = make(1);
  v.assign(3);
  EXPECT_THAT(numbers(v), ElementsAre(3, 3));
  EXPECT_EQ(number(v.read()), 3);
  expect_outside();
}

TEST_P(MirroredVariables, Case43Operators) {
  auto scope = strategy.scope();
  const Variable v = variable("v", 1, {.aggregation = Aggregation::sum});
  EXPECT_EQ(v.dtype(), torch::kLong);
  EXPECT_EQ(number(v + 1), 2);
  EXPECT_THAT(numbers(strategy.run([&] { return v + 1; })), ElementsAre(2, 2));
}

TEST_P(MirroredVariables, Case44RandomInitialValuesAreEqual) {
  for (const auto synchronization : {Synchronization::on_write, Synchronization::on_read}) {
    const VariableOptions options{.synchronization = synchronization,
                                  .aggregation = Aggregation::mean};
    const auto random = [] { return torch::rand({4}); };
    const Variable inside = strategy.run([&] { return variable("v", random, options); });
    EXPECT_TRUE(torch::equal(inside[0], inside[1]));
    EXPECT_NE(inside[0].data_ptr(), inside[1].data_ptr());
    EXPECT_GT(number(inside[0].std()), 0);
    auto scope = strategy.scope();
    const Variable across = variable("v", random, options);
    EXPECT_TRUE(torch::equal(across[0], across[1]));
  }
}

TEST_P(MirroredVariables, Case51AGlobalStep) {
  auto scope = strategy.scope();
  const Variable step = variable("global_step", torch::zeros({}, torch::kLong),
                                 {.aggregation = Aggregation::only_first_replica});
  EXPECT_THAT(numbers(strategy.run([&] {
                step.assign_add(1);
                return step.read().clone();
              })),
              ElementsAre(1, 1));
  EXPECT_EQ(step.dtype(), torch::kLong);
}

TEST_P(MirroredVariables, Case52OnlyFirstReplica) {
  const Variable v = make(3, Aggregation::only_first_replica);
  strategy.run([&] { v.assign_add(torch::full({}, 7.0 * (replica_id() + 1))); });
  EXPECT_THAT(numbers(v), ElementsAre(10, 10));
  strategy.run([&] { v.assign_add(13.0 * (replica_id() + 1)); });
  EXPECT_THAT(numbers(v), ElementsAre(23, 23));
}

TEST_P(MirroredVariables, WritesOfOneStepComeInOrder) {
  const Variable v = make(0, Aggregation::sum);
  const Variable w = make(0, Aggregation::mean);
  strategy.run([&] {
    for (int i = 0; i < 5; ++i) {
      v.assign_add(w.assign_add(torch::ones({})) + 0);  // w + 1 on both, their sum into v
    }
  });
  EXPECT_THAT(numbers(w), ElementsAre(5, 5));
  EXPECT_THAT(numbers(v), ElementsAre(30, 30));
}

TEST_P(MirroredVariables, ReplicasMustWriteTheSameVariable) {
  const Variable v = make(0, Aggregation::sum);
  const Variable w = make(0, Aggregation::sum);
  EXPECT_THAT(wrong_value([&] {
                strategy.run([&] { (replica_id() == 0 ? v : w).assign(torch::ones({})); });
              }),
              HasSubstr("another variable"));
  EXPECT_THAT(wrong_context([&] {
                strategy.run([&] {
                  if (replica_id() == 0) {
                    v.assign(torch::ones({}));
                  } else {
                    v.assign_add(torch::ones({}));
                  }
                });
              }),
              AllOf(HasSubstr("replica 1 calls assign_add of variable v"),
                    HasSubstr("replica 0 calls assign")));
  EXPECT_THAT(numbers(v), ElementsAre(0, 0));
}

// --- Contexts that need one execution only. ---------------------------------------------------

struct Mirrored2 : ::testing::Test {
  MirroredStrategy strategy{cpus(2)};
  Scope scope = strategy.scope();

  Variable rows(std::initializer_list<double> initial, Aggregation aggregation) {
    return variable("rows", torch::tensor(std::vector<double>(initial)),
                    {.aggregation = aggregation});
  }
  static IndexedSlices slice(double value, std::int64_t at) {
    return {torch::tensor({at}), torch::tensor({value})};
  }
};
using ScatterTest = Mirrored2;
using MirroredVariable = Mirrored2;

TEST_F(ScatterTest, Case46MinMaxUpdateNeedOneReplicasSlices) {
  using Method = Tensor (Variable::*)(const IndexedSlices&, Here) const;
  for (const Aggregation aggregation : {Aggregation::sum, Aggregation::mean}) {
    const Variable v = rows({0, 2, 0}, aggregation);
    for (const Method method :
         {&Variable::scatter_min, &Variable::scatter_max, &Variable::scatter_update}) {
      const auto refused = [&](const auto& call) {
        EXPECT_THAT(error_of<Unsupported>(Code::unimplemented, call),
                    AllOf(HasSubstr("scatter_"), HasSubstr("only_first_replica")));
      };
      refused([&] { strategy.run([&] { (v.*method)(slice(1, 1), Here::now()); }); });
      refused([&] { (v.*method)(slice(1, 1), Here::now()); });  // across replicas, too
    }
    EXPECT_THAT(numbers(v.read()), ElementsAre(0, 2, 0));
  }
  const auto first = Aggregation::only_first_replica;
  const Variable low = rows({0, 2, 0}, first);
  const Variable high = rows({0, 0, 0}, first);
  const Variable set = rows({0, 0, 0}, first);
  strategy.run([&] {
    low.scatter_min(slice(1 - 10.0 * replica_id(), 1));
    high.scatter_max(slice(1 + replica_id(), 0));
    set.scatter_update(slice(3 + replica_id(), 1));
  });
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(numbers(low[i]), ElementsAre(0, 1, 0));
    EXPECT_THAT(numbers(high[i]), ElementsAre(1, 0, 0));
    EXPECT_THAT(numbers(set[i]), ElementsAre(0, 3, 0));
  }
}

TEST_F(ScatterTest, Case47AcrossReplicas) {
  const Variable v = rows({1, 1, 1}, Aggregation::none);
  EXPECT_THAT(numbers(v.scatter_add(slice(2, 0))), ElementsAre(3, 1, 1));
  EXPECT_THAT(numbers(v[1]), ElementsAre(3, 1, 1));
  EXPECT_THAT(numbers(v.scatter_sub(slice(1, 2))), ElementsAre(3, 1, 0));
  EXPECT_THAT(numbers(v.scatter_mul(slice(4, 1))), ElementsAre(3, 4, 0));
  EXPECT_THAT(numbers(v.scatter_div(slice(2, 1))), ElementsAre(3, 2, 0));
  const Variable w = rows({1, 1, 1}, Aggregation::none);
  EXPECT_THAT(numbers(w.scatter_min(slice(2, 0))), ElementsAre(1, 1, 1));
  EXPECT_THAT(numbers(w.scatter_max(slice(2, 0))), ElementsAre(2, 1, 1));
  EXPECT_THAT(numbers(w.scatter_update(slice(7, 2))), ElementsAre(2, 1, 7));
}

/// Counts what libtorch warns of on this thread.
class WarningCount : public c10::WarningHandler {
 public:
  void process(const c10::SourceLocation&, const std::string&, bool) override { ++count; }
  int count = 0;
};

TEST_F(ScatterTest, NothingOfItIsABetaVersion) {
  WarningCount warnings;
  const c10::Warning::WarnAlways each_time;
  const c10::Warning::WarningHandlerGuard guard(&warnings);
  const Variable v = rows({1, 1, 1}, Aggregation::none);
  for (const auto method : {&Variable::scatter_add, &Variable::scatter_sub, &Variable::scatter_mul,
                            &Variable::scatter_div, &Variable::scatter_min, &Variable::scatter_max,
                            &Variable::scatter_update}) {
    (v.*method)(slice(2, 1), Here::now());
  }
  EXPECT_EQ(warnings.count, 0);
}

// A row that occurs more than once meets its values in their order.
TEST_F(ScatterTest, DuplicatesInOneCall) {
  const Tensor at = torch::tensor({2, 0, 2, 2});
  const auto with = [&](const Variable& v, const auto method) {
    return numbers((v.*method)({at, torch::tensor({2.0, 3.0, 4.0, 5.0})}, Here::now()));
  };
  EXPECT_THAT(with(rows({10, 20, 40}, Aggregation::none), &Variable::scatter_mul),
              ElementsAre(30, 20, 1600));
  EXPECT_THAT(with(rows({12, 20, 40}, Aggregation::none), &Variable::scatter_div),
              ElementsAre(4, 20, 1));
  EXPECT_THAT(with(rows({1, 20, 40}, Aggregation::none), &Variable::scatter_min),
              ElementsAre(1, 20, 2));
  EXPECT_THAT(with(rows({1, 20, 4}, Aggregation::none), &Variable::scatter_max),
              ElementsAre(3, 20, 5));
  const Variable none = rows({1, 2, 3}, Aggregation::none);
  none.scatter_mul({torch::empty({0}, torch::kLong), torch::empty({0}, torch::kDouble)});
  EXPECT_THAT(numbers(none.read()), ElementsAre(1, 2, 3));
}

// As C++ and TensorFlow do, not as Python does.
TEST(ScatterDiv, OfIntegersGoesTowardsZero) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable v = variable("v", torch::tensor({-7, 7, -6}, torch::kInt));
  const IndexedSlices slices{torch::tensor({0, 1, 2}), torch::tensor({2, -2, 2}, torch::kInt)};
  EXPECT_EQ(numbers(v.scatter_div(slices)), (std::vector<double>{-3, -3, -3}));
}

TEST_F(ScatterTest, SlicesOfAllReplicasAddUp) {
  const Variable sum = rows({1, 1, 1}, Aggregation::sum);
  const Variable mean = rows({1, 1, 1}, Aggregation::mean);
  const Variable product = rows({1, 2, 3}, Aggregation::sum);
  strategy.run([&] {
    // Row 0 of replica 0, row 1 of replica 1, row 2 of both: duplicates add up.
    const Tensor own = torch::tensor({replica_id(), 2}, torch::kInt);
    sum.scatter_add({own, torch::tensor({2.0, 3.0})});
    mean.scatter_sub({own.to(torch::kLong), torch::tensor({2.0, 3.0})});
    product.scatter_mul({own, torch::tensor({2.0, 3.0})});
    product.scatter_div({own, torch::tensor({1.0, 2.0})});
  });
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(numbers(sum[i]), ElementsAre(3, 3, 7));
    EXPECT_THAT(numbers(mean[i]), ElementsAre(0, 0, -2));
    EXPECT_THAT(numbers(product[i]), ElementsAre(2, 4, 6.75));
  }
}

TEST_F(ScatterTest, WithoutAggregationInAStep) {
  const Variable v = rows({1, 1, 1}, Aggregation::none);
  EXPECT_THAT(wrong_value([&] { strategy.run([&] { v.scatter_add(slice(1, 0)); }); }),
              HasSubstr("no aggregation"));
}

TEST_F(ScatterTest, WrongSlices) {
  const Variable v = variable("v", torch::zeros({3, 2}));
  const auto refuse = [&](const Tensor& indices, const Tensor& values, const char* words) {
    EXPECT_THAT(wrong_value([&] {
                  v.scatter_add({indices, values});
                }),
                AllOf(HasSubstr("scatter_add of variable v"), HasSubstr(words)));
  };
  refuse(torch::tensor({3}), torch::ones({1, 2}), "index 3 is outside of 0..2");
  refuse(torch::tensor({-1}), torch::ones({1, 2}), "index -1");
  refuse(torch::tensor({0, 1}), torch::ones({1, 2}), "not 2 rows");
  refuse(torch::tensor({0}), torch::ones({1, 3}), "[1, 3]");
  refuse(torch::tensor(0), torch::ones({1, 2}), "one dimension");
  EXPECT_THAT(numbers(v.read()), ElementsAre(0, 0, 0, 0, 0, 0));
  const Variable scalar = variable("s", 1.0);
  EXPECT_THAT(wrong_value([&] { scalar.scatter_add(slice(1, 0)); }), HasSubstr("no rows"));
  // No rows at all are none.
  v.scatter_add({torch::empty({0}, torch::kLong), torch::empty({0, 2})});
}

TEST_F(MirroredVariable, Case48ModesAreChecked) {
  const auto make = [](VariableOptions options) { variable("v", 1.0, options); };
  EXPECT_THAT(wrong_value([&] { make({.synchronization = Synchronization::none}); }),
              HasSubstr("synchronization none"));
  EXPECT_THAT(wrong_value([&] { make({.synchronization = static_cast<Synchronization>(9)}); }),
              HasSubstr("Invalid variable synchronization mode"));
  EXPECT_THAT(wrong_value([&] { make({.aggregation = static_cast<Aggregation>(9)}); }),
              HasSubstr("Invalid variable aggregation mode"));
  EXPECT_THAT(wrong_value([&] { parse_synchronization("Invalid"); }),
              AllOf(HasSubstr("Invalid variable synchronization mode"), HasSubstr("on_read")));
  EXPECT_THAT(wrong_value([&] { parse_aggregation("invalid"); }), HasSubstr("'invalid'"));
  EXPECT_EQ(parse_synchronization("ON_READ"), Synchronization::on_read);
  EXPECT_EQ(parse_aggregation("Only_First_Replica"), Aggregation::only_first_replica);
  EXPECT_EQ(to_string(Aggregation::mean), "mean");
}

TEST_F(MirroredVariable, MeanNeedsFloatingNumbers) {
  EXPECT_THAT(wrong_value([] { variable("v", 1, {.aggregation = Aggregation::mean}); }),
              HasSubstr("aggregation mean needs a floating dtype"));
  EXPECT_THAT(wrong_value([] { variable("v", 1, {.trainable = true}); }), HasSubstr("trainable"));
  EXPECT_THAT(wrong_value([] { variable("v", Tensor()); }), HasSubstr("undefined"));
}

TEST_F(MirroredVariable, Case50SaveAndRestore) {
  for (const Aggregation aggregation :
       {Aggregation::none, Aggregation::sum, Aggregation::mean, Aggregation::only_first_replica}) {
    const Variable v = variable("v", 2.0, {.aggregation = aggregation});
    const Tensor saved = v.export_value();
    EXPECT_EQ(number(saved), 2);
    v.assign(7);
    EXPECT_EQ(number(saved), 2);  // a copy
    v.restore_value(saved);
    EXPECT_THAT(numbers(v), ElementsAre(2, 2));
    v.restore_value(torch::full({}, 3.0));  // of an ordinary variable
    EXPECT_THAT(numbers(v), ElementsAre(3, 3));
    EXPECT_THAT(wrong_value([&] { v.restore_value(torch::ones({2})); }), HasSubstr("[2]"));
  }
  scope.exit();
  const Variable v = variable("v", 2.0);
  v.restore_value(torch::full({}, 4.0));
  EXPECT_EQ(number(v.export_value()), 4);
}

TEST_F(MirroredVariable, NamesDevicesAndComponents) {
  const Variable v = variable("v", torch::zeros({2, 3}), {.trainable = true});
  EXPECT_EQ(v.name(), "v");
  EXPECT_EQ(v.size(), 2);
  EXPECT_EQ(v.devices(), strategy.worker_devices());
  EXPECT_TRUE(v.trainable());
  EXPECT_EQ(v.shape(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(v[0].name(), "v");
  EXPECT_EQ(v[1].name(), "v/replica_1");
  EXPECT_EQ(v[1].device(), Device("CPU:1"));
  EXPECT_EQ(v.component_on("CPU:1").index(), 1);
  EXPECT_THAT(wrong_value([&] { static_cast<void>(v.component_on("CPU:2")); }),
              HasSubstr("not found"));
  EXPECT_THAT(wrong_value([&] { static_cast<void>(v[2]); }), HasSubstr("component 2"));
  EXPECT_TRUE(value_container(v[1])->same_as(v));
  EXPECT_EQ(variable("", 1.0).name(), "Variable");
}

TEST_F(MirroredVariable, ReadingInsideIsLiveOutsideACopy) {
  const Variable v = variable("v", 1.0, {.aggregation = Aggregation::sum});
  const Tensor before = v.read();
  v.assign(2);
  EXPECT_EQ(number(before), 1);
  strategy.run([&] {
    const Tensor live = v.read();
    EXPECT_EQ(live.data_ptr(), v[replica_id()].data_ptr());
    v.assign(torch::full({}, 5.0));
    EXPECT_EQ(number(live), 10);
  });
}

TEST_F(MirroredVariable, GradientsFlowToTheReplicasOwnCopy) {
  const Variable v = variable("v", 3.0, {.trainable = true});
  strategy.run([&] { (v * v * (replica_id() + 1.0)).backward(); });
  EXPECT_EQ(number(v[0].grad()), 6);
  EXPECT_EQ(number(v[1].grad()), 12);
  EXPECT_FALSE(v.read().requires_grad());
  v.assign(1);  // not recorded
  EXPECT_TRUE(v[0].is_leaf());
  EXPECT_TRUE(v[0].requires_grad());
}

TEST_F(MirroredVariable, TheCurrentDeviceDecidesWhichCopyIsRead) {
  const Variable v = variable("v", 1.0);
  v[1].assign(2);
  EXPECT_EQ(number(v.read()), 1);
  const DeviceScope there("CPU:1");
  EXPECT_EQ(number(v.read()), 2);
}

TEST_F(MirroredVariable, InsideUpdateItIsTheCopyBeingUpdated) {
  const Variable v = variable("v", 1.0, {.aggregation = Aggregation::sum});
  const Variable w = variable("w", 10.0);
  w[1].assign(20);
  auto result = strategy.update(v, [&](Component& copy) {
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_EQ(v.read().data_ptr(), copy.data_ptr());
    v.assign_add(w.read());
    return number(copy);
  });
  EXPECT_THAT(local_results(result), ElementsAre(11, 21));
  EXPECT_THAT(wrong_context([&] {
                strategy.update(v, [&](Component&) { strategy.update(w, [](Component&) {}); });
              }),
              HasSubstr("inside an update"));
  EXPECT_THAT(wrong_context([&] { strategy.update(v, [&](Component&) { strategy.run([] {}); }); }),
              HasSubstr("inside update()"));
}

TEST_F(MirroredVariable, ShapesAreChecked) {
  const Variable v = variable("v", torch::zeros({2}), {.aggregation = Aggregation::sum});
  const auto words = AllOf(HasSubstr("variable v"), HasSubstr("[3]"), HasSubstr("[2]"));
  EXPECT_THAT(wrong_value([&] { v.assign(torch::ones({3})); }), words);
  EXPECT_THAT(wrong_value([&] { v.assign(strategy.broadcast(torch::ones({3}))); }), words);
  EXPECT_THAT(wrong_value([&] { strategy.run([&] { v.assign_add(torch::ones({3})); }); }), words);
}

TEST_F(MirroredVariable, ValuesTakeTheVariablesDtype) {
  const Variable v = variable("v", torch::zeros({}, torch::kLong),
                              {.aggregation = Aggregation::only_first_replica});
  v.assign(2.75);
  EXPECT_EQ(number(v.read()), 2);
  v.assign_add(torch::full({}, 1.75));
  EXPECT_EQ(number(v.read()), 3);
  strategy.run([&] { v.assign_sub(1.5 + replica_id()); });
  EXPECT_THAT(numbers(v), ElementsAre(2, 2));
  EXPECT_EQ(v.dtype(), torch::kLong);
  const Variable f = variable("f", 1.0);
  EXPECT_EQ(f.dtype(), torch::kFloat);
  f.assign_add(torch::full({}, 1.5, torch::kDouble));
  EXPECT_EQ(f.read().scalar_type(), torch::kFloat);
}

TEST_F(MirroredVariable, OperatorsReadTheOperands) {
  const Variable v = variable("v", 7.0);
  const Variable w = variable("w", 2.0);
  EXPECT_EQ(number(v + w), 9);
  EXPECT_EQ(number(1 - v), -6);
  EXPECT_EQ(number(v * torch::full({}, 2)), 14);
  EXPECT_EQ(number(7 / w), 3.5);
  EXPECT_EQ(number(v % 4), 3);
  EXPECT_EQ(number(9 % w), 1);
  EXPECT_EQ(number(-v), -7);
  EXPECT_EQ(number(abs(-v)), 7);
  EXPECT_EQ(number(abs(w)), 2);
  EXPECT_EQ(number(pow(v, 2)), 49);
  EXPECT_EQ(number(pow(2, w)), 4);
  EXPECT_EQ(number(floor_divide(v, w)), 3);
  EXPECT_EQ(number(floor_divide(9, w)), 4);
  EXPECT_TRUE((w < v).item<bool>());
  EXPECT_TRUE((2 <= w).item<bool>());
  EXPECT_FALSE((w > v).item<bool>());
  EXPECT_TRUE((v >= 7).item<bool>());
  EXPECT_TRUE((~variable("b", torch::zeros({}, torch::kBool))).item<bool>());
  const Variable m = variable("m", torch::eye(2) * 3);
  EXPECT_THAT(numbers(matmul(m, torch::ones({2}))), ElementsAre(3, 3));
  EXPECT_THAT(numbers(matmul(torch::ones({2}), m)), ElementsAre(3, 3));
  EXPECT_EQ(number(strategy.broadcast(torch::full({}, 2)) + v), 9);
}

TEST_F(MirroredVariable, ComparisonsAndBits) {
  const Variable v = variable("v", torch::tensor({5, 7, 6}));
  const Variable w = variable("w", torch::tensor({5, 3, 6}));
  const Mirrored<Tensor> seven = strategy.broadcast(torch::full({}, 7));
  EXPECT_THAT(numbers(v == 7), ElementsAre(0, 1, 0));
  EXPECT_THAT(numbers(7 != v), ElementsAre(1, 0, 1));
  EXPECT_THAT(numbers(v == w), ElementsAre(1, 0, 1));
  EXPECT_THAT(numbers(v != w.read()), ElementsAre(0, 1, 0));
  EXPECT_THAT(numbers(v == seven), ElementsAre(0, 1, 0));
  EXPECT_THAT(numbers(v & 3), ElementsAre(1, 3, 2));
  EXPECT_THAT(numbers(8 | v), ElementsAre(13, 15, 14));
  EXPECT_THAT(numbers(v ^ w), ElementsAre(0, 4, 0));
  EXPECT_TRUE(seven.any().equal(torch::full({}, 7)));
  EXPECT_EQ(number(seven == 7), 1);
  EXPECT_EQ(number(seven & 3), 3);
  EXPECT_THAT(numbers(v << 1), ElementsAre(10, 14, 12));
  EXPECT_THAT(numbers(v >> 1), ElementsAre(2, 3, 3));
  EXPECT_THAT(numbers(1 << w), ElementsAre(32, 8, 64));
  EXPECT_EQ(number(seven >> 1), 3);
  EXPECT_EQ(number(seven << 1), 14);
  EXPECT_EQ((v << 1).scalar_type(), v.dtype());
  EXPECT_EQ((v == 7).scalar_type(), torch::kBool);
  strategy.run([&] { EXPECT_THAT(numbers(v == 7), ElementsAre(0, 1, 0)); });
}

TEST_F(MirroredVariable, Prints) {
  const Variable v = variable("v", 1.5);
  std::ostringstream text;
  text << v;
  EXPECT_EQ(text.str(), "MirroredVariable:{\n  0: v = 1.5,\n  1: v/replica_1 = 1.5\n}");
}

TEST_F(MirroredVariable, OneReplicaNeedsNoAggregation) {
  scope.exit();
  MirroredStrategy one(cpus(1));
  auto in_one = one.scope();
  const Variable v = variable("v", 1.0);
  const Variable sum = variable("sum", 1.0, {.aggregation = Aggregation::sum});
  one.run([&] {
    v.assign(5);
    sum.assign(5);
  });
  EXPECT_EQ(number(v.read()), 5);
  EXPECT_EQ(number(sum.read()), 5);
}

}  // namespace
}  // namespace lockstep
