// The strategy that is configured after it was made: alone, and as threads with a session each.
#include "lockstep/collective_all_reduce_strategy.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <future>

#include "tests/strategy/fixtures.h"
#include "tests/strategy/set_variable.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const ClusterSpec kWorkers{{"worker", {"a:1", "b:1", "c:1"}}};
const ClusterSpec kWithChief{{"chief", {"a:1"}}, {"worker", {"b:1", "c:1"}}};

MultiWorkerOptions with_gpus(int gpus) {
  MultiWorkerOptions options;
  options.device_table = DeviceTable{.cpus = 2, .gpus = gpus};
  return options;
}

/// Three workers as threads, each with a strategy that is configured and has not joined.
using Work = std::function<void(CollectiveAllReduceStrategy&)>;
void on_three(const ClusterSpec& cluster, int gpus, const Work& work) {
  coll::SessionOptions session;
  session.replicas = std::max(1, gpus);
  coll::run_ranks(
      3,
      [&](coll::Session& group) {
        const int rank = group.rank();
        const bool has_chief = cluster.has_job("chief");
        MultiWorkerOptions options = with_gpus(gpus);
        options.session = std::make_shared<coll::Session>(std::move(group));
        CollectiveAllReduceStrategy strategy(gpus, options);
        strategy.configure(NoSession{}, cluster, has_chief && rank == 0 ? "chief" : "worker",
                           has_chief && rank > 0 ? rank - 1 : rank);
        work(strategy);
      },
      session);
}

TEST(CollectiveAllReduceStrategyTest, IsLocalUntilConfigured) {
  CollectiveAllReduceStrategy strategy;
  EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
  EXPECT_TRUE(strategy.should_checkpoint());
  EXPECT_TRUE(strategy.should_save_summary());
  EXPECT_THAT(strategy.experimental_initialize(), IsEmpty());
  const auto scope = strategy.scope();
  EXPECT_EQ(&get_strategy(), &strategy.extended().strategy());
  EXPECT_THAT(strategy.extended().worker_devices(), ElementsAre(Device("CPU:0")));
  EXPECT_EQ(number(strategy.reduce(ReduceOp::sum, torch::ones({}))), 1);
  EXPECT_THAT(strategy.experimental_finalize(), IsEmpty());
}

TEST(CollectiveAllReduceStrategyTest, AsManyGpusAsItIsTold) {
  CollectiveAllReduceStrategy strategy(2, with_gpus(4));
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  EXPECT_THAT(strategy.extended().worker_devices(), ElementsAre(Device("GPU:0"), Device("GPU:1")));
  const auto ids = strategy.experimental_run([] { return replica_id(); });
  EXPECT_EQ(number(strategy.reduce("sum", ids)), 1);
  // None is asked for, so none is used.
  EXPECT_THAT(CollectiveAllReduceStrategy(0, with_gpus(4)).extended().worker_devices(),
              ElementsAre(Device("CPU:0")));
}

TEST(CollectiveAllReduceStrategyTest, DevicesAreChecked) {
  EXPECT_THAT(wrong_value([] { CollectiveAllReduceStrategy(-1); }), HasSubstr("is -1"));
  const std::string missing = error_of<ConfigError>(
      Code::invalid_argument, [] { CollectiveAllReduceStrategy(3, with_gpus(2)); });
  EXPECT_THAT(missing, HasSubstr("GPU:2"));
  MultiWorkerOptions given = with_gpus(2);
  given.devices = {"CPU:0", "CPU:1"};
  EXPECT_EQ(CollectiveAllReduceStrategy(0, given).num_replicas_in_sync(), 2);
  EXPECT_THAT(wrong_value([&] { CollectiveAllReduceStrategy(1, given); }), HasSubstr("one of"));
  MultiWorkerOptions resolved;
  resolved.cluster_resolver = SimpleClusterResolver(kWorkers);
  EXPECT_THAT(wrong_value([&] { CollectiveAllReduceStrategy(0, resolved); }),
              HasSubstr("configure()"));
}

TEST(CollectiveAllReduceStrategyTest, Case105ConfiguredBeforeAnybodyHasJoined) {
  CollectiveAllReduceStrategy strategy(2, with_gpus(2));
  strategy.configure(NoSession{}, kWorkers, "worker", 1);
  EXPECT_EQ(strategy.num_replicas_in_sync(), 6);
  EXPECT_FALSE(strategy.should_checkpoint());
  EXPECT_FALSE(strategy.should_save_summary());

  ConfigProto before;
  before.device_filters = {"/job:worker/task:0", "/job:ps"};
  before.scoped_allocator_enable_op = {"CollectiveGather", "Add"};
  before.collective_group_leader = "somebody";
  const ConfigProto given = before;
  const ConfigProto config = strategy.update_config_proto(before);
  EXPECT_EQ(config.collective_group_leader, "/job:worker/replica:0/task:0");
  EXPECT_THAT(config.device_filters, ElementsAre("/job:worker/task:1"));
  EXPECT_THAT(config.scoped_allocator_enable_op, ElementsAre("CollectiveReduce"));
  EXPECT_TRUE(config.scoped_allocator_optimization);
  EXPECT_FALSE(config.collective_nccl);
  EXPECT_EQ(before, given) << "what is given stays as it is";
}

TEST(CollectiveAllReduceStrategyTest, TheChiefLeadsIfThereIsOne) {
  CollectiveAllReduceStrategy chief;
  const ConfigProto config = chief.configure(ConfigProto{}, kWithChief, "chief", 0);
  EXPECT_EQ(config.collective_group_leader, "/job:chief/replica:0/task:0");
  EXPECT_THAT(config.device_filters, ElementsAre("/job:chief/task:0"));
  EXPECT_TRUE(chief.should_checkpoint());
  CollectiveAllReduceStrategy worker;
  worker.configure(NoSession{}, kWithChief, "worker", 0);
  EXPECT_EQ(worker.num_replicas_in_sync(), 3);
  EXPECT_FALSE(worker.should_checkpoint());
  EXPECT_EQ(worker.update_config_proto({}).collective_group_leader, "/job:chief/replica:0/task:0");
  CollectiveAllReduceStrategy first;
  first.configure(NoSession{}, kWorkers, "worker", 0);
  EXPECT_TRUE(first.should_checkpoint());
}

TEST(CollectiveAllReduceStrategyTest, TheConfigurationOfALocalStrategy) {
  ConfigProto before;
  before.device_filters = {"/job:ps"};
  const ConfigProto config = CollectiveAllReduceStrategy().configure(before);
  EXPECT_THAT(config.scoped_allocator_enable_op, ElementsAre("CollectiveReduce"));
  EXPECT_EQ(config.collective_group_leader, "");
  EXPECT_EQ(config.device_filters, before.device_filters);
  MultiWorkerOptions nccl;
  nccl.communication = "nccl";
  EXPECT_TRUE(CollectiveAllReduceStrategy(0, nccl).update_config_proto({}).collective_nccl);
  nccl.cluster_resolver = SimpleClusterResolver(ClusterSpec());
  MultiWorkerMirroredStrategy made(nccl);
  EXPECT_TRUE(compat::v1::Strategy(made).update_config_proto({}).collective_nccl);
}

TEST(CollectiveAllReduceStrategyTest, ATaskIsSaidInFull) {
  CollectiveAllReduceStrategy strategy;
  EXPECT_THAT(wrong_value([&] { strategy.configure(NoSession{}, kWorkers); }),
              HasSubstr("task_type"));
  EXPECT_THAT(wrong_value([&] { strategy.configure(NoSession{}, kWorkers, "worker"); }),
              HasSubstr("task_id"));
  EXPECT_THAT(wrong_value([&] { strategy.configure(NoSession{}, kWorkers, {}, 1); }),
              HasSubstr("task_type"));
  for (const char* type : {"ps", "evaluator", "boss"}) {
    EXPECT_THAT(wrong_value([&] { strategy.configure(NoSession{}, kWorkers, type, 0); }),
                AllOf(HasSubstr(type), HasSubstr("'chief' and 'worker'")));
  }
  const auto wrong_cluster = [&](const ClusterSpec& cluster, const char* type, int id) {
    return error_of<ConfigError>(Code::invalid_argument,
                                 [&] { strategy.configure(NoSession{}, cluster, type, id); });
  };
  EXPECT_THAT(wrong_cluster(kWorkers, "worker", 3), HasSubstr("task_id 3"));
  EXPECT_THAT(wrong_cluster(kWorkers, "chief", 0), HasSubstr("'chief' is not in the cluster"));
  EXPECT_THAT(wrong_cluster({{"ps", {"a:1"}}}, "worker", 0), HasSubstr("which has ps"));
  EXPECT_THAT(wrong_cluster({{"worker", JobTasks()}}, "worker", 0), HasSubstr("has 0 tasks"));
  // Nothing of it was kept.
  EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
}

TEST(CollectiveAllReduceStrategyTest, IsConfiguredOnceAndBeforeItIsUsed) {
  CollectiveAllReduceStrategy strategy;
  strategy.configure();
  strategy.configure(NoSession{}, ClusterSpec{});
  strategy.configure(NoSession{}, kWorkers, "worker", 1);
  strategy.configure(NoSession{}, kWorkers, "worker", 1);
  strategy.configure(NoSession{});
  EXPECT_EQ(strategy.num_replicas_in_sync(), 3);
  EXPECT_THAT(wrong_context([&] { strategy.configure(NoSession{}, kWorkers, "worker", 2); }),
              AllOf(HasSubstr("worker 1"), HasSubstr("worker 2")));
  EXPECT_THAT(wrong_context([&] { strategy.configure(NoSession{}, kWithChief, "worker", 1); }),
              HasSubstr("chief"));
  EXPECT_FALSE(strategy.should_checkpoint());

  CollectiveAllReduceStrategy used;
  static_cast<void>(used.extended());
  EXPECT_THAT(wrong_context([&] { used.configure(NoSession{}, kWorkers, "worker", 1); }),
              HasSubstr("before its first use"));
  EXPECT_EQ(used.num_replicas_in_sync(), 1);
}

TEST(CollectiveAllReduceStrategyTest, TfConfigDoesNotSayWhoTakesPart) {
  const char* another =
      R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})";
  for (const char* text : {another, "{this is not JSON"}) {
    const SetVariable tf_config("TF_CONFIG", text);
    CollectiveAllReduceStrategy local;
    EXPECT_EQ(local.num_replicas_in_sync(), 1);
    EXPECT_EQ(local.extended().strategy().num_replicas_in_sync(), 1);
    EXPECT_TRUE(local.should_checkpoint());
    EXPECT_EQ(local.update_config_proto({}).collective_group_leader, "");
    on_three(kWithChief, 0, [](CollectiveAllReduceStrategy& strategy) {
      strategy.experimental_initialize();
      EXPECT_EQ(strategy.extended().strategy().num_replicas_in_sync(), 3);
    });
  }
}

TEST(CollectiveAllReduceStrategyTest, Case106AVariableStartsWithTheSameValueEverywhere) {
  for (const ClusterSpec& cluster : {kWorkers, kWithChief}) {
    for (const int gpus : {0, 2}) {
      SCOPED_TRACE(to_string(cluster) + " gpus " + std::to_string(gpus));
      on_three(cluster, gpus, [&](CollectiveAllReduceStrategy& strategy) {
        const auto scope = strategy.scope();
        const auto x = strategy.extended().call_for_each_replica([] {
          return variable("x", [] { return torch::rand({2, 3}) * 9 + 1; }).read();
        });
        const Tensor mean = strategy.reduce(ReduceOp::mean, x);
        for (int i = 0; i < x.size(); ++i) EXPECT_TRUE(torch::allclose(mean, x[i])) << mean << x[i];
      });
    }
  }
}

TEST(CollectiveAllReduceStrategyTest, ReducesOverAllWorkersAlsoWithOneDevice) {
  on_three(kWithChief, 0, [](CollectiveAllReduceStrategy& strategy) {
    const auto ids = strategy.experimental_run([] { return torch::full({2}, 1.0 + replica_id()); });
    EXPECT_EQ(numbers(strategy.reduce(ReduceOp::sum, ids)), (std::vector<double>{6, 6}));
    EXPECT_EQ(numbers(strategy.reduce(ReduceOp::mean, ids)), (std::vector<double>{2, 2}));
    EXPECT_EQ(number(strategy.reduce("sum", 1.0)), 3);
  });
}

// Case 133 by hand, as the first programs did it: y = (w - 1)^2, ten steps.
TEST(CollectiveAllReduceStrategyTest, Case133MinimizesALossOnThreeWorkers) {
  on_three(kWorkers, 2, [](CollectiveAllReduceStrategy& strategy) {
    const auto scope = strategy.scope();
    VariableOptions trainable;
    trainable.trainable = true;
    const Variable w = variable("w", torch::full({1}, 10.0), trainable);
    double before = 9;
    for (int step = 0; step < 10; ++step) {
      const auto gradients =
          strategy.extended().call_for_each_replica([&] { return 2 * (w.read().detach() - 1); });
      const auto reduced = strategy.extended().reduce_to(ReduceOp::sum, gradients, w);
      strategy.extended().update(
          w, [](const Component& copy, const Tensor& g) { copy.assign_sub(0.05 * g); }, reduced);
      const double error = std::abs(number(w.read()) - 1);
      EXPECT_LT(error, before);
      before = error;
    }
    EXPECT_EQ(numbers(w[0]), numbers(w[1]));
    EXPECT_NEAR(before, 9 * std::pow(0.4, 10), 1e-3);
  });
}

TEST(CollectiveAllReduceStrategyTest, JoinsAndLeavesInOrder) {
  std::atomic<int> joined = 0;
  on_three(kWorkers, 0, [&](CollectiveAllReduceStrategy& strategy) {
    EXPECT_THAT(strategy.experimental_finalize(), IsEmpty()) << "not joined, nothing to leave";
    EXPECT_THAT(strategy.experimental_initialize(), IsEmpty());
    const Strategy* same = &strategy.extended().strategy();
    EXPECT_THAT(strategy.experimental_initialize(), IsEmpty());
    EXPECT_EQ(&strategy.extended().strategy(), same);
    const int index = strategy.experimental_run([] { return replica_id(); }).single();
    strategy.configure(NoSession{}, kWorkers, "worker", index);  // the same again
    {
      const auto scope = strategy.scope();
      EXPECT_THAT(wrong_context([&] { strategy.experimental_finalize(); }), HasSubstr("scope"));
    }
    ++joined;
    EXPECT_THAT(strategy.experimental_finalize(), IsEmpty());
    EXPECT_EQ(joined, 3) << "nobody leaves before all are there";
    EXPECT_THAT(strategy.experimental_finalize(), IsEmpty());
    EXPECT_EQ(strategy.num_replicas_in_sync(), 3);
    EXPECT_THAT(wrong_context([&] { static_cast<void>(strategy.scope()); }),
                HasSubstr("experimental_initialize()"));
    EXPECT_THAT(wrong_context([&] { strategy.experimental_initialize(); }),
                HasSubstr("session that was given"));
  });
}

// Over sockets, and twice: what a session that is given cannot do. TF_CONFIG is ignored.
TEST(CollectiveAllReduceStrategyTest, JoinsAnewAfterItHasLeft) {
  const SetVariable tf_config("TF_CONFIG", "{this is not JSON");
  const TemporaryDirectory directory;
  const std::string path = "unix:" + directory.path();
  const ClusterSpec cluster{{"worker", {path + "/0", path + "/1"}}};
  const auto work = [&](int index) {
    MultiWorkerOptions options;
    options.join_timeout = std::chrono::seconds(30);
    CollectiveAllReduceStrategy strategy(0, options);
    strategy.configure(NoSession{}, cluster, "worker", index);
    std::vector<Variable> kept;  // what lives on does not keep the worker in the group
    for (int round = 0; round < 2; ++round) {
      strategy.experimental_initialize();
      {
        const auto scope = strategy.scope();
        kept.push_back(variable("kept", torch::full({}, 1.0 + index)));
      }
      EXPECT_EQ(number(strategy.reduce(ReduceOp::sum, torch::full({}, 1.0 + index))), 3);
      strategy.experimental_finalize();
      EXPECT_EQ(number(kept.back()[0]), 1) << "the chief's value";
    }
  };
  std::future<void> other = std::async(std::launch::async, work, 1);
  work(0);
  other.get();
}

TEST(CollectiveAllReduceStrategyTest, ASessionIsNotUsedBeforeItIsConfigured) {
  coll::run_ranks(2, [](coll::Session& group) {
    MultiWorkerOptions options = with_gpus(0);
    options.session = std::make_shared<coll::Session>(std::move(group));
    const CollectiveAllReduceStrategy strategy(0, options);
    EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
    EXPECT_EQ(number(strategy.reduce(ReduceOp::sum, torch::ones({}))), 1);
  });
}

TEST(CollectiveAllReduceStrategyTest, ASessionOfAnotherGroupIsRefused) {
  coll::run_ranks(2, [](coll::Session& group) {
    const int rank = group.rank();
    MultiWorkerOptions options = with_gpus(0);
    options.session = std::make_shared<coll::Session>(std::move(group));
    CollectiveAllReduceStrategy strategy(0, options);
    strategy.configure(NoSession{}, kWorkers, "worker", rank);
    EXPECT_THAT(
        error_of<ConfigError>(Code::invalid_argument, [&] { strategy.experimental_initialize(); }),
        HasSubstr("of 3 by configure(), but the session"));
  });
}

TEST(CollectiveAllReduceStrategyTest, ACloneHasVariablesOfItsOwnAndTheSameWorkers) {
  on_three(kWorkers, 2, [](CollectiveAllReduceStrategy& strategy) {
    const CollectiveAllReduceStrategy copy = strategy.clone();
    EXPECT_NE(&copy.extended().strategy(), &strategy.extended().strategy());
    EXPECT_EQ(copy.num_replicas_in_sync(), 6);
    EXPECT_EQ(copy.should_checkpoint(), strategy.should_checkpoint());
    EXPECT_EQ(copy.update_config_proto({}), strategy.update_config_proto({}));
    const auto ones = copy.experimental_run([] { return torch::ones({}); });
    EXPECT_EQ(number(copy.reduce(ReduceOp::sum, ones)), 6);
    EXPECT_EQ(number(strategy.reduce(ReduceOp::sum, ones)), 6);
  });
}

TEST(CollectiveAllReduceStrategyTest, ACloneOfALocalOneMayBeConfigured) {
  CollectiveAllReduceStrategy strategy(2, with_gpus(2));
  static_cast<void>(strategy.extended());
  CollectiveAllReduceStrategy copy = strategy.clone();
  EXPECT_EQ(copy.num_replicas_in_sync(), 2);
  copy.configure(NoSession{}, kWorkers, "worker", 2);
  EXPECT_EQ(copy.num_replicas_in_sync(), 6);
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  static_assert(!std::is_copy_constructible_v<CollectiveAllReduceStrategy>);
  coll::run_ranks(1, [](coll::Session& group) {
    MultiWorkerOptions options = with_gpus(0);
    options.session = std::make_shared<coll::Session>(std::move(group));
    const CollectiveAllReduceStrategy with_session(0, options);
    EXPECT_THAT(wrong_context([&] { static_cast<void>(with_session.clone()); }),
                HasSubstr("configure"));
  });
}

TEST(CollectiveAllReduceStrategyTest, WhatIsExtended) {
  MultiWorkerOptions options = with_gpus(0);
  options.devices = {"CPU:0", "CPU:1"};
  CollectiveAllReduceStrategy strategy(0, options);
  const auto scope = strategy.scope();
  const StrategyExtended extended = strategy.extended();
  Strategy& plain = extended;
  EXPECT_EQ(&plain, &extended.strategy());
  EXPECT_THAT(extended.parameter_devices(), SizeIs(2));
  const Variable v = variable("v", torch::zeros({}));
  const auto ids = extended.call_for_each_replica(
      [](int ten) { return torch::full({}, ten + replica_id()); }, 10);
  const std::vector<std::pair<PerReplica<Tensor>, Variable>> pairs = {{ids, v}, {ids, v}};
  EXPECT_THAT(extended.batch_reduce_to(ReduceOp::mean, pairs), SizeIs(2));
  extended.update(
      v, [](const Component& c, const Tensor& x) { c.assign(x); },
      extended.reduce_to("mean", ids, v));
  EXPECT_EQ(numbers(v), (std::vector<double>{10.5, 10.5}));
  EXPECT_EQ(extended.broadcast_to(torch::ones({}), DeviceList{"CPU:1"}).size(), 1);
  const NonSlotDevices where = extended.non_slot_devices({v});
  EXPECT_EQ(where.devices.size(), 2u);
  EXPECT_EQ(extended.update_non_slot(where, [] { return 7; }).any(), 7);
  const auto colocated = extended.colocate_vars_with(v);
  EXPECT_EQ(variable("next", torch::zeros({})).devices(), v.devices());
}

}  // namespace
}  // namespace lockstep
