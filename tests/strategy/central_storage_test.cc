// CentralStorageStrategy: replicas on several devices, variables on one.
#include <sstream>

#include "fixtures.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CentralStorageOptions central(DeviceList compute, std::optional<Device> parameters = {}) {
  CentralStorageOptions options;
  options.compute_devices = std::move(compute);
  options.parameter_device = std::move(parameters);
  options.device_table = DeviceTable{.cpus = 2, .gpus = 2};
  return options;
}

TEST(CentralStorage, WhereThingsLive) {
  const CentralStorageStrategy two(central({"GPU:0", "GPU:1"}));
  EXPECT_EQ(two.num_replicas_in_sync(), 2);
  EXPECT_EQ(two.parameter_devices(), DeviceList{"CPU:0"});
  const CentralStorageStrategy given(central({"GPU:0", "GPU:1"}, "GPU:1"));
  EXPECT_EQ(given.parameter_devices(), DeviceList{"GPU:1"});
  const CentralStorageStrategy one(central({"GPU:1"}));
  EXPECT_EQ(one.parameter_devices(), DeviceList{"GPU:1"});
  const CentralStorageStrategy all(central({}));
  EXPECT_EQ(all.worker_devices(), (DeviceList{"GPU:0", "GPU:1"}));
  EXPECT_THROW(CentralStorageStrategy(central({"GPU:0"}, "GPU:9")), ConfigError);
}

struct Central : ::testing::TestWithParam<Execution> {
  static CentralStorageOptions options() {
    CentralStorageOptions options = central({"GPU:0", "GPU:1"});
    options.replicas.execution = GetParam();
    return options;
  }
  CentralStorageStrategy strategy{options()};
  Scope scope = strategy.scope();
};
INSTANTIATE_TEST_SUITE_P(Executions, Central,
                         ::testing::Values(Execution::concurrent, Execution::sequential));

TEST_P(Central, OneTensorForAllReplicas) {
  const Variable v = variable("v", 1.0, {.aggregation = Aggregation::sum});
  EXPECT_EQ(v.size(), 1);
  EXPECT_THAT(v.devices(), ElementsAre(Device("CPU:0")));
  auto results = strategy.run([&] {
    EXPECT_EQ(v.read().data_ptr(), v[0].data_ptr());
    return number(v.assign_add(torch::full({}, replica_id() + 1.0)));
  });
  EXPECT_THAT(local_results(results), ElementsAre(4, 4));
  EXPECT_EQ(number(v.read()), 4);
  EXPECT_EQ(number(v.assign(2)), 2);
  EXPECT_EQ(number(v + 1), 3);
}

TEST_P(Central, AggregationsAndLiterals) {
  const Variable mean = variable("mean", 0.0, {.aggregation = Aggregation::mean});
  const Variable first = variable("first", 0.0, {.aggregation = Aggregation::only_first_replica});
  const Variable sum = variable("sum", 1.0, {.aggregation = Aggregation::sum});
  const Variable none = variable("none", 1.0);
  strategy.run([&] {
    mean.assign(torch::full({}, replica_id() * 4.0));
    mean.assign_add(1);
    first.assign_add(replica_id() + 1);
  });
  EXPECT_EQ(number(mean.read()), 3);
  EXPECT_EQ(number(first.read()), 1);
  EXPECT_THAT(wrong_value([&] { strategy.run([&] { sum.assign(5.0); }); }),
              HasSubstr("value 5.0 cannot be reduced"));
  EXPECT_THAT(wrong_value([&] { strategy.run([&] { none.assign(5.0); }); }),
              HasSubstr("no aggregation"));
  EXPECT_EQ(number(none.read()), 1);
}

TEST_P(Central, ScatterAggregatesOnce) {
  const Variable v = variable("v", torch::zeros({3}), {.aggregation = Aggregation::sum});
  strategy.run([&] { v.scatter_add({torch::tensor({replica_id(), 2}), torch::ones({2})}); });
  EXPECT_THAT(numbers(v.read()), ElementsAre(1, 1, 2));
}

TEST_P(Central, SyncOnReadHasACopyForEachReplica) {
  const Variable v = variable(
      "v", 0.0, {.synchronization = Synchronization::on_read, .aggregation = Aggregation::sum});
  EXPECT_EQ(v.devices(), strategy.worker_devices());
  strategy.run([&] { v.assign_add(replica_id() + 1); });
  EXPECT_EQ(number(v.read()), 3);
  EXPECT_EQ(number(v.assign(8)), 8);
  EXPECT_THAT(numbers(v), ElementsAre(4, 4));
}

TEST_P(Central, UpdateRunsOnceWhereTheVariableIs) {
  const Variable v = variable("v", 1.0);
  int calls = 0;
  const auto result = strategy.update(
      v,
      [&](Component& copy, const Tensor& x) {
        ++calls;
        EXPECT_EQ(current_device(), Device("CPU:0").str());
        copy.assign(x);
        return 7;
      },
      strategy.reduce_to(ReduceOp::sum, strategy.run([] { return torch::ones({}); }), v));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(result.single(), 7);
  EXPECT_EQ(number(v.read()), 2);
  // A mirrored value of the compute devices is not where the variable is.
  EXPECT_THAT(wrong_value([&] {
                strategy.update(
                    v, [](Component&, const Tensor&) {}, strategy.broadcast(torch::ones({})));
              }),
              HasSubstr("no component on"));
  const Variable a = variable("a", 1.0);
  EXPECT_EQ(strategy.non_slot_devices({v, a}).devices, DeviceList{"CPU:0"});
  EXPECT_EQ(strategy.update_non_slot(strategy.non_slot_devices({v}), [] { return 1; }).single(), 1);
}

TEST_P(Central, VariablesOfStepFunctions) {
  const Variable v = strategy.run([] { return variable("v", torch::rand({2})); });
  EXPECT_EQ(v.size(), 1);
}

TEST_P(Central, SaveAndRestore) {
  const Variable v = variable("v", 2.0, {.aggregation = Aggregation::sum});
  EXPECT_EQ(number(v.export_value()), 2);
  v.restore_value(torch::full({}, 3.0));
  EXPECT_EQ(number(v.read()), 3);
}

TEST(CentralStorage, OneReplicaHasPlainVariables) {
  CentralStorageStrategy strategy(central({"GPU:1"}));
  auto scope = strategy.scope();
  const Variable v = variable("v", 1.0);
  strategy.run([&] { v.assign(5); });
  EXPECT_EQ(number(v.read()), 5);
}

TEST(CentralStorage, VariablesPrint) {
  CentralStorageStrategy strategy(central({"GPU:0", "GPU:1"}));
  auto scope = strategy.scope();
  std::ostringstream text;
  text << variable("v", 1.5);
  EXPECT_EQ(text.str(), "AggregatingVariable:{\n  0: v = 1.5\n}");
}

}  // namespace
}  // namespace lockstep
