// The spellings of tf.compat.v1, and the examples of the document of MultiWorkerMirroredStrategy.
#include "lockstep/compat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/collective_all_reduce_strategy.h"
#include "lockstep/testing.h"
#include "tests/input/steps.h"

namespace lockstep {
namespace {

using data::range;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::Rows;
using testing::run_workers;
using testing::Step;
using testing::step_of;
using testing::steps_of;

namespace v1 = compat::v1;

SimpleClusterResolver task(const ClusterSpec& cluster, const std::string& type, int id) {
  SimpleClusterOptions options;
  options.task_type = type;
  options.task_id = id;
  return SimpleClusterResolver(cluster, options);
}
const ClusterSpec kCluster{{"worker", {"a:1", "b:1"}}, {"ps", {"c:1"}}};

class CompatV1 : public testing::TwoReplicas {
 protected:
  v1::Strategy older{strategy};
};

TEST_F(CompatV1, IsAViewOfAnyStrategy) {
  EXPECT_EQ(&older.strategy(), &strategy);
  EXPECT_EQ(older.num_replicas_in_sync(), 2);
  EXPECT_EQ(older.cluster_resolver(), nullptr);
  EXPECT_EQ(older.extended().worker_devices().size(), 2u);
  const auto scope = older.scope();
  EXPECT_EQ(&get_strategy(), &strategy);
  EXPECT_EQ(v1::Strategy(get_strategy()).num_replicas_in_sync(), 2);
  ConfigProto config;
  config.device_filters = {"/job:ps"};
  EXPECT_EQ(older.update_config_proto(config), config) << "nothing to say without a cluster";
}

TEST_F(CompatV1, DistributesDatasets) {
  EXPECT_EQ(steps_of(older.experimental_distribute_dataset(range(4).batch(GlobalBatch{2}))),
            (std::vector<Step>{{{0}, {1}}, {{2}, {3}}}));
  InputOptions options;
  options.prefetch_steps = -1;
  EXPECT_THROW(older.experimental_distribute_dataset(range(4).batch(GlobalBatch{2}), options),
               InvalidUsage);
  EXPECT_THROW(older.experimental_distribute_datasets_from_function(
                   [](const InputContext&) { return range(4).batch(PerReplicaBatch{1}); }, options),
               InvalidUsage);
}

TEST_F(CompatV1, LocalResults) {
  EXPECT_THAT(older.experimental_local_results(older.run([] { return 3; })), ElementsAre(3, 3));
  EXPECT_THAT(older.experimental_local_results(5), ElementsAre(5));
  const auto scope = older.scope();
  EXPECT_EQ(older.experimental_local_results(variable("v", torch::zeros({1}))).size(), 2u);
}

TEST_F(CompatV1, RunsByAllItsNames) {
  const auto twice = [](int x) { return 2 * x; };
  EXPECT_THAT(local_results(older.run(twice, 3)), ElementsAre(6, 6));
  EXPECT_THAT(local_results(older.experimental_run_v2(twice, 4)), ElementsAre(8, 8));
  EXPECT_THAT(local_results(older.experimental_run([] { return 5; })), ElementsAre(5, 5));
  RunOptions options;
  options.global_batch_size = 12;
  const auto size = [](ReplicaContext& replica) { return replica.global_batch_size(); };
  EXPECT_THAT(local_results(older.run(options, size)), ElementsAre(12, 12));
}

TEST_F(CompatV1, IteratorsAndTheirNextBatch) {
  auto input = older.make_dataset_iterator(range(4).batch(GlobalBatch{2}));
  input.initialize();
  EXPECT_EQ(step_of(older.experimental_run([](const Tensor& x) { return x + 1; }, input)),
            (Step{{1}, {2}}));
  EXPECT_THAT(error_of<InvalidUsage>([&] { older.make_dataset_iterator(range(4)); }),
              HasSubstr("make_input_fn_iterator"));
  EXPECT_THROW(older.make_input_fn_iterator([](const InputContext&) { return range(1); },
                                            InputReplicationMode::per_replica),
               InvalidUsage);
}

// --- the examples of the document ----------------------------------------------------------------

TEST_F(CompatV1, ExampleDistributeDataset) {
  const auto dataset = range(8).batch(GlobalBatch{4});
  const auto dist_dataset = older.experimental_distribute_dataset(dataset);
  EXPECT_EQ(dist_dataset.element_spec().size(), 2u);
  Rows sums;
  for (const auto& x : dist_dataset) {
    const auto train_step = [](const Tensor& inputs) { return inputs.sum(); };
    sums.push_back(older.reduce("sum", older.run(train_step, x)).item<std::int64_t>());
  }
  EXPECT_THAT(sums, ElementsAre(0 + 1 + 2 + 3, 4 + 5 + 6 + 7));
}

TEST_F(CompatV1, ExampleDatasetsFromFunction) {
  const int global_batch_size = 8;
  const auto dataset_fn = [&](const InputContext& input_context) {
    const auto batch_size = input_context.get_per_replica_batch_size(global_batch_size);
    const auto d =
        data::from_tensors(torch::ones({1, 1})).repeat(32).batch(PerReplicaBatch{batch_size});
    return d.shard(input_context.num_input_pipelines, input_context.input_pipeline_id);
  };
  const auto ds = older.experimental_distribute_datasets_from_function(dataset_fn);
  int steps = 0;
  for (const auto& batch : ds) {
    const auto replica_results = older.run([](const Tensor& inputs) { return inputs; }, batch);
    EXPECT_EQ(replica_results[1].sizes(), (std::vector<std::int64_t>{4, 1, 1}));
    ++steps;
  }
  EXPECT_EQ(steps, 4);
}

TEST_F(CompatV1, ExampleNumpyDataset) {
  const Tensor numpy_input = torch::ones({10});
  const auto dataset = older.experimental_make_numpy_dataset(numpy_input, NoSession{});
  const auto dist_dataset = older.experimental_distribute_dataset(dataset.batch(GlobalBatch{10}));
  EXPECT_EQ(steps_of(dist_dataset), (std::vector<Step>{{Rows(5, 1), Rows(5, 1)}}));
}

TEST_F(CompatV1, ExampleInputFunction) {
  const int global_batch_size = 4;
  const auto input_fn = [&](const InputContext& input_context) {
    const auto batch_size = input_context.get_per_replica_batch_size(global_batch_size);
    const auto d = range(100).batch(PerReplicaBatch{batch_size});
    return d.shard(input_context.num_input_pipelines, input_context.input_pipeline_id);
  };
  const auto replica_fn = [](const Tensor& x) { return x * 10; };
  const auto scope = older.scope();
  auto iterator = older.make_input_fn_iterator(input_fn);
  EXPECT_EQ(step_of(older.experimental_run(replica_fn, iterator)), (Step{{0, 10}, {20, 30}}));
  EXPECT_EQ(step_of(older.extended().call_for_each_replica(replica_fn, iterator.get_next())),
            (Step{{40, 50}, {60, 70}}));
}

TEST_F(CompatV1, ExampleReduce) {
  // A global batch of 8 on two replicas.
  const auto value =
      older.experimental_distribute_values_from_function([](const ValueContext& context) {
        return torch::arange(4) + 4 * context.replica_id_in_sync_group;
      });
  EXPECT_EQ(testing::numbers_of(older.reduce("sum", value)), (Rows{0 + 4, 1 + 5, 2 + 6, 3 + 7}));
  EXPECT_EQ(older.reduce(ReduceOp::sum, value, along(0)).item<std::int64_t>(), 28);
  // A last batch of 6: 4 rows and 2 have the denominator 6.
  const auto last = older.run(
      [](const Tensor& x) { return x.slice(0, 0, x[0].item<int>() == 0 ? 4 : 2); }, value);
  EXPECT_EQ(older.reduce("mean", last, along(0)).item<double>(), 15.0 / 6);
}

TEST_F(CompatV1, ExampleRun) {
  const Tensor tensor_input = torch::full({}, 3.0);
  const auto replica_fn = [](const Tensor& input) { return input * 2.0; };
  EXPECT_EQ(older.run(replica_fn, tensor_input)[0].item<double>(), 6.0);
  const auto value_fn = [](const ValueContext& context) { return context.num_replicas_in_sync; };
  const auto distributed_values = older.experimental_distribute_values_from_function(value_fn);
  const auto result = older.run([](int input) { return input * 2; }, distributed_values);
  EXPECT_THAT(local_results(result), ElementsAre(4, 4));
}

// --- several workers -----------------------------------------------------------------------------

TEST(CompatMultiWorker, IsLocalWithoutACluster) {
  v1::MultiWorkerMirroredStrategy strategy;
  EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
  ASSERT_NE(strategy.cluster_resolver(), nullptr);
  EXPECT_FALSE(strategy.cluster_resolver()->cluster_spec());
  const auto scope = strategy.scope();
  EXPECT_EQ(strategy.reduce("sum", torch::ones({})).item<double>(), 1);
  EXPECT_EQ(strategy.update_config_proto({}).collective_group_leader, "");
}

TEST(CompatMultiWorker, TheResolverSaysWhichTaskThisIs) {
  v1::MultiWorkerMirroredStrategy strategy(Communication::nccl, task(kCluster, "evaluator", 0));
  ASSERT_NE(strategy.cluster_resolver(), nullptr);
  EXPECT_EQ(strategy.cluster_resolver()->task_type(), "evaluator");
  const ConfigProto config = strategy.update_config_proto({});
  EXPECT_EQ(config.collective_group_leader, "") << "an evaluator is led by nobody";
  EXPECT_THAT(config.device_filters, ElementsAre("/job:evaluator/task:0"));
  EXPECT_TRUE(config.collective_nccl);
  EXPECT_THROW(v1::MultiWorkerMirroredStrategy("smoke signals"), InvalidUsage);
  EXPECT_THROW(v1::MultiWorkerMirroredStrategy("auto", task(kCluster, "ps", 0)), ConfigError);
}

TEST(CompatMultiWorker, TheConfigurationOfATask) {
  const ConfigProto before;
  const ConfigProto config = update_config_proto(before, task(kCluster, "worker", 1), "ring");
  EXPECT_EQ(config.collective_group_leader, "/job:worker/replica:0/task:0");
  EXPECT_THAT(config.device_filters, ElementsAre("/job:worker/task:1"));
  EXPECT_THAT(config.scoped_allocator_enable_op, ElementsAre("CollectiveReduce"));
  EXPECT_FALSE(config.collective_nccl);
  EXPECT_EQ(before, ConfigProto{});
  EXPECT_TRUE(update_config_proto(before, task(kCluster, "worker", 1), "nccl").collective_nccl);
  const auto refused = [&](const ClusterResolver& resolver) {
    return error_of<ConfigError>([&] { static_cast<void>(update_config_proto({}, resolver)); });
  };
  EXPECT_THAT(refused(SimpleClusterResolver(kCluster)), HasSubstr("type"));
  EXPECT_THAT(refused(task(ClusterSpec{{"ps", {"c:1"}}}, "ps", 0)),
              HasSubstr("neither chief nor workers"));
  EXPECT_THAT(refused(task(kCluster, "worker", 2)), HasSubstr("task_id 2"));
}

TEST(CompatMultiWorker, DistributesOverWorkers) {
  run_workers({.workers = 2, .replicas = 2}, [](MultiWorkerMirroredStrategy& workers) {
    const v1::Strategy strategy(workers);
    EXPECT_EQ(strategy.num_replicas_in_sync(), 4);
    EXPECT_EQ(strategy.cluster_resolver(), &workers.cluster_resolver());
    const auto sum = [&](const auto& batch) {
      const auto rows = strategy.run([](const Tensor& x) { return x.sum(); }, batch);
      EXPECT_EQ(strategy.experimental_local_results(rows).size(), 2u);
      return strategy.reduce("sum", rows).template item<std::int64_t>();
    };
    Rows sums;
    const auto dataset = range(16).batch(GlobalBatch{8});
    for (const auto& batch : strategy.experimental_distribute_dataset(dataset)) {
      sums.push_back(sum(batch));
    }
    EXPECT_THAT(sums, ElementsAre(28, 92));
    // Each worker makes its own half.
    const auto ds =
        strategy.experimental_distribute_datasets_from_function([](const InputContext& context) {
          EXPECT_EQ(context.num_input_pipelines, 2);
          return range(8)
              .shard(context.num_input_pipelines, context.input_pipeline_id)
              .batch(PerReplicaBatch{context.get_per_replica_batch_size(4)});
        });
    sums.clear();
    for (const auto& batch : ds) sums.push_back(sum(batch));
    EXPECT_THAT(sums, ElementsAre(0 + 1 + 2 + 3, 4 + 5 + 6 + 7));
  });
}

// The document of CollectiveAllReduceStrategy: its example, on two workers of two replicas.
TEST(CompatMultiWorker, ExampleInputFunctionOfCollectiveAllReduce) {
  coll::SessionOptions session;
  session.replicas = 2;
  coll::run_ranks(
      2,
      [](coll::Session& group) {
        const int rank = group.rank();
        MultiWorkerOptions options;
        options.devices = {"CPU:0", "CPU:1"};
        options.session = std::make_shared<coll::Session>(std::move(group));
        CollectiveAllReduceStrategy strategy(0, options);
        strategy.configure(NoSession{}, ClusterSpec{{"worker", {"a:1", "b:1"}}}, "worker", rank);
        const auto input_fn = [](const InputContext& input_context) {
          const auto d = data::from_tensors(torch::full({1, 1}, 1.0)).repeat(8);
          return d.shard(input_context.num_input_pipelines, input_context.input_pipeline_id);
        };
        const auto replica_fn = [](const Tensor& x) { return x * 2; };
        const auto scope = strategy.scope();
        auto iterator = strategy.make_input_fn_iterator(input_fn);
        const auto replica_results =
            strategy.extended().call_for_each_replica(replica_fn, iterator.get_next());
        EXPECT_EQ(strategy.reduce("sum", replica_results).item<double>(), 8);
        EXPECT_EQ(strategy.experimental_run(replica_fn, iterator)[0].item<double>(), 2);
        EXPECT_THROW(iterator.get_next(), EndOfData);
        EXPECT_THROW(strategy.make_input_fn_iterator(input_fn, InputReplicationMode::per_replica),
                     InvalidUsage);

        auto batches = strategy.make_dataset_iterator(range(8).batch(GlobalBatch{4}));
        const auto sums =
            strategy.experimental_run([](const Tensor& x) { return x.sum(); }, batches);
        EXPECT_EQ(strategy.reduce("sum", sums).item<std::int64_t>(), 0 + 1 + 2 + 3);
        EXPECT_THAT(error_of<InvalidUsage>([&] { strategy.make_dataset_iterator(range(8)); }),
                    HasSubstr("make_input_fn_iterator"));
      },
      session);
}

}  // namespace
}  // namespace lockstep
