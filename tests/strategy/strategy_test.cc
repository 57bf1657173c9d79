// A strategy as an object: copies, devices, how it prints, and what outlives it.
#include <memory>
#include <sstream>
#include <thread>

#include "fixtures.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Strategies, CloneHasDevicesAndOptionsButItsOwnVariables) {
  MirroredOptions options = cpus(2, Execution::sequential);
  options.replicas.seed = 5;
  MirroredStrategy strategy(options);
  const auto copy = strategy.clone();
  EXPECT_EQ(copy->worker_devices(), strategy.worker_devices());
  const auto draw = [](Strategy& s) { return s.run([] { return torch::rand({3}); }); };
  EXPECT_TRUE(torch::equal(draw(strategy)[1], draw(*copy)[1]));
  auto scope = strategy.scope();
  const Variable v = variable("v", 1.0);
  EXPECT_THAT(wrong_context([&] { copy->update(v, [](Component&) {}); }), HasSubstr("Mixing"));
}

TEST(Strategies, DevicesAreChecked) {
  EXPECT_THAT(wrong_value([] {
                MirroredStrategy({.devices = {"CPU:0", "/cpu:0"}});
              }),
              HasSubstr("given twice"));
  EXPECT_THAT(error_of<ConfigError>(Code::invalid_argument,
                                    [] {
                                      MirroredStrategy strategy(on({"GPU:0", "GPU:5"}));
                                    }),
              HasSubstr("GPU:5"));
  EXPECT_THAT(wrong_value([] {
                MirroredOptions options = cpus(2);
                options.replicas.threads_per_replica = 0;
                MirroredStrategy strategy(options);
              }),
              HasSubstr("threads_per_replica"));
}

TEST(Strategies, AVariableMayOutliveItsStrategy) {
  auto strategy = std::make_unique<MirroredStrategy>(cpus(2));
  const Variable v = [&] {
    auto scope = strategy->scope();
    return variable("v", 4.0);
  }();
  strategy.reset();
  EXPECT_EQ(number(v.read()), 4);
  EXPECT_THAT(wrong_context([&] { v.assign(1); }), HasSubstr("is gone"));
}

/// The current strategy of this thread was destroyed: every call is refused and says so.
void expect_gone(Strategy& other) {
  const auto gone = AllOf(HasSubstr("MirroredStrategy"), HasSubstr("is gone"));
  EXPECT_THAT(wrong_context([] { get_strategy(); }), gone);
  EXPECT_THAT(wrong_context([] { variable("v", 1.0); }), gone);
  EXPECT_THAT(wrong_context([&] { other.run([] {}); }), gone);
  EXPECT_THAT(wrong_context([&] { auto scope = other.scope(); }), gone);
  EXPECT_THAT(wrong_context([&] { auto there = other.colocate_vars_with("CPU:1"); }), gone);
  EXPECT_TRUE(has_strategy());
  EXPECT_TRUE(in_cross_replica_context());
}

TEST(Strategies, SetStrategyMayOutliveItsStrategy) {
  MirroredStrategy other(cpus(2));
  {
    MirroredStrategy strategy(cpus(2));
    strategy.run([] {});
    set_strategy(&strategy);
  }
  expect_gone(other);
  set_strategy(&other);
  EXPECT_EQ(&get_strategy(), &other);
  set_strategy(nullptr);
  expect_outside();
}

TEST(Strategies, AScopeMayOutliveItsStrategy) {
  MirroredStrategy other(cpus(2));
  auto strategy = std::make_unique<MirroredStrategy>(cpus(2));
  auto scope = strategy->scope();
  strategy->run([] {});
  const auto there = strategy->colocate_vars_with("CPU:1");
  strategy.reset();
  expect_gone(other);
  EXPECT_THAT(wrong_context([&] { scope.exit(); }), HasSubstr("colocate_vars_with"));
}

TEST(Strategies, AThreadMayEndWithAStrategyThatIsGone) {
  auto strategy = std::make_unique<MirroredStrategy>(cpus(2));
  std::thread([&] {
    set_strategy(strategy.get());
    strategy->run([] {});
    strategy.reset();
    EXPECT_THAT(wrong_context([] { get_strategy(); }), HasSubstr("is gone"));
  }).join();
  expect_outside();
}

TEST(Strategies, PrintThemselves) {
  std::ostringstream text;
  text << MirroredStrategy(cpus(2));
  EXPECT_EQ(text.str(), "MirroredStrategy(CPU:0, CPU:1)");
}

TEST(Strategies, OneDevice) {
  OneDeviceStrategy strategy("GPU:1", {}, DeviceTable{.cpus = 1, .gpus = 2});
  const auto thread = std::this_thread::get_id();
  auto scope = strategy.scope();
  // A variable of one replica needs no aggregation: there is nothing to disagree with.
  auto v = variable("v", 1.0);
  auto sum = strategy.run([&](ReplicaContext& replica) {
    EXPECT_EQ(std::this_thread::get_id(), thread);
    EXPECT_EQ(replica.device(), Device("GPU:1"));
    EXPECT_EQ(current_device(), replica.device().str());
    v.assign(5);
    const double all = replica.merge_call(
        [](Strategy& s, const PerReplica<double>& each) {
          EXPECT_TRUE(in_cross_replica_context());
          return number(s.reduce(ReduceOp::sum, each));
        },
        3.0);
    EXPECT_EQ(get_replica_context(), &replica);
    return all;
  });
  EXPECT_EQ(sum.single(), 3);
  EXPECT_EQ(number(v.read()), 5);
}

}  // namespace
}  // namespace lockstep
