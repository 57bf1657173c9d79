// Distributed values: components, devices, reading; names of variables that replicas share.
#include <sstream>

#include "fixtures.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Values, Case25SpellingsOfADevice) {
  const PerReplica<int> value({7}, DeviceList{"/cpu:0"});
  for (const char* name : {"", "/device:CPU:0", "/cpu:0", "/CPU:0"}) {
    EXPECT_EQ(value.get(name), 7) << name;
  }
  EXPECT_THAT(wrong_value([&] { static_cast<void>(value.get("/device:cpu:0")); }),
              HasSubstr("/device:cpu:0"));
}

TEST(Values, Case26ReadOnTheCurrentDevice) {
  const Mirrored<int> value({1, 2}, DeviceList{"CPU:0", "GPU:0"});
  {
    const DeviceScope here("CPU:0");
    EXPECT_EQ(value.any(), 1);
    EXPECT_EQ(static_cast<int>(value), 1);
  }
  {
    const DeviceScope here("GPU:0");
    EXPECT_EQ(value.any(), 2);
  }
  {
    const DeviceScope here("GPU:1");  // none there: the first
    EXPECT_EQ(value.any(), 1);
  }
  EXPECT_EQ(value.any(), 1);
  EXPECT_EQ(value.get("/device:GPU:0"), 2);
  EXPECT_THAT(wrong_value([&] { static_cast<void>(value.get("/device:GPU:2")); }),
              AllOf(HasSubstr("GPU:2"), HasSubstr("not found"), HasSubstr("GPU:0")));
}

TEST(Values, Case28Canonicalize) {
  EXPECT_EQ(Device::canonicalize("/job:worker/task:1", "/gpu:0").str(),
            "/job:worker/replica:0/task:1/device:GPU:0");
  EXPECT_EQ(Device::canonicalize("/cpu:0", "/job:worker").str(),
            "/job:worker/replica:0/task:0/device:CPU:0");
}

TEST(Values, Case29CanonicalVariableNames) {
  EXPECT_EQ(canonical_variable_name(""), "Variable");
  EXPECT_EQ(canonical_variable_name("foo_1/bar_1/baz"), "foo/bar/baz");
  EXPECT_EQ(canonical_variable_name("foo_1"), "foo");
  for (const char* same : {"foo_1:0", "foo1", "foo_a", "foo"}) {
    EXPECT_EQ(canonical_variable_name(same), same);
  }
}

TEST(Values, ComponentsAreChecked) {
  const PerReplica<int> value({1, 2}, DeviceList{"CPU:0", "CPU:1"});
  EXPECT_EQ(value[1], 2);
  EXPECT_THAT(wrong_value([&] { static_cast<void>(value[2]); }), HasSubstr("component 2"));
  EXPECT_THAT(wrong_value([&] { static_cast<void>(value[-1]); }), HasSubstr("component -1"));
  EXPECT_THAT(wrong_value([&] { static_cast<void>(value.single()); }),
              AllOf(HasSubstr("2 components"), HasSubstr("local_results")));
  EXPECT_THAT(wrong_value([] { PerReplica<int>({}, DeviceList{}); }), HasSubstr("non-empty"));
  EXPECT_THAT(wrong_value([] {
                PerReplica<int>({1}, DeviceList{"CPU:0", "CPU:1"});
              }),
              HasSubstr("2 devices"));
  EXPECT_EQ(PerReplica<int>({3}, DeviceList{"CPU:0"}).single(), 3);
  EXPECT_THAT(local_results(5), ElementsAre(5));
}

TEST(Values, BoolsAreAddressable) {
  const PerReplica<bool> value({true, false}, DeviceList{"CPU:0", "CPU:1"});
  const bool& second = value[1];
  EXPECT_FALSE(second);
}

TEST(Values, Print) {
  std::ostringstream text;
  text << PerReplica<int>({1, 2}, DeviceList{"CPU:0", "CPU:1"});
  EXPECT_EQ(text.str(), "PerReplica:{\n  0: 1,\n  1: 2\n}");
  text.str("");
  text << Mirrored<Tensor>({torch::tensor({1.5, 2.0})}, DeviceList{"CPU:0"});
  EXPECT_EQ(text.str(), "Mirrored:{\n  0: [1.5, 2]\n}");
  text.str("");
  text << Mirrored<Tensor>({torch::zeros({2, 3})}, DeviceList{"CPU:0"});
  EXPECT_EQ(text.str(), "Mirrored:{\n  0: Float[2, 3]\n}");
}

TEST(Values, AgreedIsUsableAsWhatItHolds) {
  const Agreed<int> number(3);
  EXPECT_EQ(number + 1, 4);
  const Agreed<std::string> word(std::string("ab"));
  EXPECT_EQ(word.size(), 2U);
}

// --- What run() makes of results. -------------------------------------------------------------

TEST(Regroup, ContainersGoElementByElement) {
  MirroredStrategy strategy(cpus(2));
  auto vector = strategy.run([] { return std::vector{replica_id(), 10 + replica_id()}; });
  EXPECT_THAT(local_results(vector.at(1)), ElementsAre(10, 11));
  auto tuple = strategy.run([] { return std::tuple(replica_id(), std::string("s")); });
  EXPECT_THAT(local_results(std::get<0>(tuple)), ElementsAre(0, 1));
  auto array = strategy.run([] { return std::array{replica_id(), 5}; });
  EXPECT_THAT(local_results(array[1]), ElementsAre(5, 5));
  auto map = strategy.run([] {
    return std::map<std::string, std::pair<int, int>>{{"k", {replica_id(), -replica_id()}}};
  });
  EXPECT_THAT(local_results(map.at("k").second), ElementsAre(0, -1));
  auto optional = strategy.run([] { return std::optional(replica_id()); });
  EXPECT_THAT(local_results(optional.value()), ElementsAre(0, 1));
  EXPECT_FALSE(strategy.run([] { return std::optional<int>(); }).has_value());
  auto hashed = strategy.run([] { return std::unordered_map<int, int>{{1, replica_id()}}; });
  EXPECT_THAT(local_results(hashed.at(1)), ElementsAre(0, 1));
}

TEST(Regroup, ShapesMustBeTheSame) {
  MirroredStrategy strategy(cpus(2));
  const auto words = AllOf(HasSubstr("different structure"), HasSubstr("replica 1"));
  EXPECT_THAT(wrong_value([&] {
                strategy.run([] { return std::map<int, int>{{replica_id(), 1}}; });
              }),
              words);
  EXPECT_THAT(wrong_value([&] {
                strategy.run([] { return replica_id() == 0 ? std::optional(1) : std::nullopt; });
              }),
              words);
  EXPECT_THAT(wrong_value([&] {
                strategy.run([](ReplicaContext& replica) {
                  replica.merge_call([](const std::vector<PerReplica<int>>&) {},
                                     std::vector<int>(static_cast<std::size_t>(replica_id())));
                });
              }),
              words);
}

TEST(Regroup, HandlesStayThemselves) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  const Variable v = variable("v", 1.0);
  const Variable w = variable("w", 1.0);
  EXPECT_TRUE(strategy.run([&] { return v; }).same_as(v));
  // Components of one variable are the variable.
  EXPECT_TRUE(strategy.run([&] { return v[replica_id()]; }).same_as(v));
  EXPECT_THAT(wrong_value([&] { strategy.run([&] { return replica_id() == 0 ? v : w; }); }),
              HasSubstr("another variable"));
}

TEST(Regroup, TheIdentityOfATensorChangesNothing) {
  MirroredStrategy strategy(cpus(2));
  const Tensor captured = torch::ones({});
  const PerReplica<Tensor> results = strategy.run([&] { return captured; });
  EXPECT_EQ(results.size(), 2);
  EXPECT_EQ(number(strategy.reduce(ReduceOp::sum, results)), 2);
  strategy.run([&](ReplicaContext& replica) {
    EXPECT_EQ(number(replica.all_reduce(ReduceOp::sum, captured)), 2);
  });
}

TEST(Regroup, AgreedResultsAreMirrored) {
  MirroredStrategy strategy(cpus(2));
  const Mirrored<Tensor> sum = strategy.run(
      [](ReplicaContext& replica) { return replica.all_reduce(ReduceOp::sum, torch::ones({})); });
  EXPECT_EQ(number(sum.any()), 2);
  // And arrive agreed at the next run.
  const Mirrored<Tensor> again =
      strategy.run([](const Agreed<Tensor>& value) { return value; }, sum);
  EXPECT_EQ(number(again), 2);
}

TEST(Regroup, OneReplicaHasTheSameTypes) {
  MirroredStrategy one(cpus(1));
  const PerReplica<int> result = one.run([] { return 5; });
  EXPECT_EQ(result.single(), 5);
  const Mirrored<Tensor> sum = one.run([](ReplicaContext& replica) {
    return replica.all_reduce(ReduceOp::mean, torch::full({}, 3.0));
  });
  EXPECT_EQ(number(sum.single()), 3);
}

TEST(Select, ArgumentsOfRunGoThroughContainers) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  const Variable v = variable("v", 1.0);
  const auto ids = strategy.run([] { return replica_id(); });
  const std::vector<PerReplica<int>> list = {ids, ids};
  const std::map<std::string, PerReplica<int>> map = {{"k", ids}};
  auto sums = strategy.run(
      [&](const std::vector<int>& from_list, const std::map<std::string, int>& from_map,
          const Variable& variable, const std::pair<int, std::string>& plain,
          const std::tuple<int, Variable>& mixed, const Tensor& shared) {
        EXPECT_TRUE(variable.same_as(v));
        EXPECT_TRUE(std::get<1>(mixed).same_as(v));
        EXPECT_EQ(plain.second, "s");
        return from_list.at(0) + from_list.at(1) + 10 * from_map.at("k") +
               100 * std::get<0>(mixed) + 1000 * plain.first + shared.item<int>();
      },
      list, map, v, std::pair(1, std::string("s")), std::tuple(ids, v), torch::full({}, 5));
  EXPECT_THAT(local_results(sums), ElementsAre(1005, 1117));
}

TEST(Select, DistributeValuesFromFunction) {
  MirroredStrategy strategy(cpus(3));
  const auto values = strategy.distribute_values_from_function([](ValueContext context) {
    EXPECT_EQ(context.num_replicas_in_sync, 3);
    return std::pair(context.replica_id_in_sync_group, torch::full({}, 7.0));
  });
  EXPECT_THAT(local_results(values.first), ElementsAre(0, 1, 2));
  EXPECT_THAT(numbers(values.second), ElementsAre(7, 7, 7));
  EXPECT_THAT(wrong_context([&] {
                strategy.run([&] {
                  strategy.distribute_values_from_function([](ValueContext) { return 1; });
                });
              }),
              HasSubstr("merge_call"));
}

// --- Variables that replicas create. ----------------------------------------------------------

class SharedVariables : public ::testing::TestWithParam<Execution> {};
INSTANTIATE_TEST_SUITE_P(Executions, SharedVariables,
                         ::testing::Values(Execution::concurrent, Execution::sequential));

TEST_P(SharedVariables, Case30ThreeReplicasGetTheSame) {
  MirroredStrategy strategy(cpus(3, GetParam()));
  std::vector<std::optional<Variable>> each(3);
  const Variable v = strategy.run([&] {
    const Variable made = variable("foo", 1.0);
    each[static_cast<std::size_t>(replica_id())] = made;
    return made;
  });
  EXPECT_EQ(v.size(), 3);
  for (const auto& made : each) EXPECT_TRUE(made.value().same_as(v));
}

TEST_P(SharedVariables, Case31NamesAndOrder) {
  MirroredStrategy strategy(cpus(2, GetParam()));
  const auto made = strategy.run([] {
    std::vector<Variable> all;
    for (const char* name : {"foo/bar", "foo_1/bar", "foo_1/bar_1", "foo/bar_1"}) {
      all.push_back(variable(name, 1.0));
    }
    return all;
  });
  std::vector<std::string> names;
  for (const Variable& v : made) names.push_back(v.name());
  EXPECT_THAT(names, ElementsAre("foo/bar", "foo_1/bar", "foo_1/bar_1", "foo/bar_1"));
}

TEST_P(SharedVariables, Case32TheNameIsReplicaZeros) {
  MirroredStrategy strategy(cpus(2, GetParam()));
  const Variable v =
      strategy.run([] { return variable("foo_" + std::to_string(replica_id()), 1.0); });
  EXPECT_EQ(v.name(), "foo_0");
}

TEST_P(SharedVariables, NamesHaveNoReplicaInThem) {
  MirroredStrategy strategy(cpus(2, GetParam()));
  const NameScope outer("main");
  const Variable v = strategy.run([] {
    const NameScope inner("foo");
    return variable("v", 1.0);
  });
  EXPECT_EQ(v.name(), "main/foo/v");
}

TEST_P(SharedVariables, MismatchingNames) {
  MirroredStrategy strategy(cpus(2, GetParam()));
  // Replica 0 pauses in a merge call, or returns, without having made it.
  EXPECT_THAT(wrong_context([&] {
                strategy.run([](ReplicaContext& replica) {
                  variable(replica_id() == 0 ? "foo" : "bar", 1.0);
                  replica.merge_call([](Strategy&) {});
                });
              }),
              AllOf(HasSubstr("Tried to create variable bar with mismatching name"),
                    HasSubstr("device 1")));
  EXPECT_THAT(wrong_context([&] {
                strategy.run([] {
                  if (replica_id() == 1) variable("bar", 1.0);
                });
              }),
              HasSubstr("variable bar"));
  // One more than replica 0 made.
  EXPECT_THAT(wrong_context([&] {
                strategy.run([] {
                  for (int i = 0; i <= replica_id(); ++i) variable("foo", 1.0);
                });
              }),
              HasSubstr("variable foo"));
  expect_outside();
}

TEST_P(SharedVariables, ReplicaZerosErrorEndsTheWait) {
  MirroredStrategy strategy(cpus(2, GetParam()));
  EXPECT_THROW(strategy.run([] {
    if (replica_id() == 0) throw std::out_of_range("before creation");
    variable("foo", 1.0);
  }),
               std::out_of_range);
}

TEST_P(SharedVariables, EachRunMakesItsOwn) {
  MirroredStrategy strategy(cpus(2, GetParam()));
  const auto make = [] { return variable("foo", 1.0); };
  EXPECT_FALSE(strategy.run(make).same_as(strategy.run(make)));
}

}  // namespace
}  // namespace lockstep
