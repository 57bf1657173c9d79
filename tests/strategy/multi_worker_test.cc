// Strategies over several workers, each a thread of this process with its own session.
#include <array>
#include <atomic>

#include "base/gate.h"
#include "lockstep/coll/threads.h"
#include "lockstep/multi_worker_mirrored_strategy.h"
#include "lockstep/testing.h"
#include "tests/cluster/variables.h"
#include "tests/strategy/fixtures.h"
#include "tests/strategy/set_variable.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_workers;
using testing::TestCluster;

SimpleClusterResolver task(const std::string& type, int id) {
  SimpleClusterOptions options;
  options.task_type = type;
  options.task_id = id;
  return SimpleClusterResolver(ClusterSpec{{"worker", {"a:1", "b:1"}}, {"ps", {"c:1"}}}, options);
}

TEST(MultiWorker, WithoutAClusterIsLocal) {
  MultiWorkerMirroredStrategy strategy;
  EXPECT_EQ(strategy.num_workers(), 1);
  EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
  EXPECT_TRUE(strategy.is_chief());
  EXPECT_TRUE(strategy.should_checkpoint());
  EXPECT_EQ(strategy.transport(), "local");
  EXPECT_FALSE(strategy.cluster_resolver().cluster_spec());
  const auto scope = strategy.scope();
  EXPECT_EQ(strategy.reduce(ReduceOp::sum, torch::ones({2})).sum().item<double>(), 2);
}

TEST(MultiWorker, AnEvaluatorIsLocalOnItsOwnDevices) {
  MultiWorkerMirroredStrategy strategy(
      {.cluster_resolver = task("evaluator", 0), .devices = {"CPU:0", "CPU:1"}});
  EXPECT_EQ(strategy.num_workers(), 1);
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  EXPECT_TRUE(strategy.is_chief());
}

TEST(MultiWorker, AnEvaluatorsClusterIsChecked) {
  const auto made = [](const ClusterSpec& cluster, int id) {
    return error_of<ConfigError>(Code::invalid_argument, [&] {
      MultiWorkerMirroredStrategy strategy(
          {.cluster_resolver =
               SimpleClusterResolver(cluster, {.task_type = "evaluator", .task_id = id})});
    });
  };
  const ClusterSpec two_chiefs{{"chief", {"a:1", "b:1"}}, {"evaluator", {"c:1"}}};
  EXPECT_THAT(made(two_chiefs, 0), HasSubstr("2 tasks of job 'chief'"));
  EXPECT_THAT(made({{"worker", {"a:1"}}, {"evaluator", {"c:1"}}}, 3), HasSubstr("3"));
}

TEST(MultiWorker, OptionsWithASessionMakeOneStrategy) {
  coll::run_ranks(2, [](coll::Session& group) {
    MultiWorkerOptions options;
    options.session = std::make_shared<coll::Session>(std::move(group));
    const MultiWorkerMirroredStrategy first(options);
    EXPECT_EQ(first.num_workers(), 2);
    EXPECT_THAT(wrong_context([&] { MultiWorkerMirroredStrategy second(options); }),
                HasSubstr("was made with them before"));
  });
}

TEST(MultiWorker, AStrategyThatEndsLeavesWhateverOfItLivesOn) {
  std::atomic<bool> seen = false;
  Gate gate;
  coll::run_ranks(2, [&](coll::Session& group) {
    const int rank = group.rank();
    MultiWorkerOptions options;
    options.session = std::make_shared<coll::Session>(std::move(group));
    auto strategy = std::make_unique<MultiWorkerMirroredStrategy>(options);
    std::unique_ptr<Strategy> shares = strategy->clone();
    std::optional<Variable> kept;
    {
      const auto scope = strategy->scope();
      kept = variable("kept", torch::ones({}));
    }
    EXPECT_EQ(number(shares->reduce(ReduceOp::sum, torch::ones({}))), 2);
    if (rank == 1) {
      strategy.reset();
      shares.reset();  // and the variable is still there
      EXPECT_EQ(number((*kept)[0]), 1);
      EXPECT_TRUE(
          gate.wait([&] { return seen.load(); }, Deadline::after(std::chrono::seconds(60))));
      return;
    }
    try {
      static_cast<void>(strategy->reduce(ReduceOp::sum, torch::ones({})));
      ADD_FAILURE();
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("has left the group"));
    }
    seen = true;
    gate.notify();
  });
}

TEST(MultiWorker, AParameterServerIsToldToBranchFirst) {
  const std::string message = error_of<ConfigError>(Code::invalid_argument, [] {
    MultiWorkerMirroredStrategy strategy({.cluster_resolver = task("ps", 0)});
  });
  EXPECT_THAT(message, HasSubstr("task_type()"));
}

// 8.4: TF_CONFIG does not say how many GPUs a task has, other resolvers do.
TEST(MultiWorker, AResolverSaysHowManyGpusATaskHas) {
  const auto devices = [](const std::optional<AnyClusterResolver>& resolver) {
    MultiWorkerOptions options;
    options.cluster_resolver = resolver;
    options.device_table = DeviceTable{.cpus = 1, .gpus = 4};
    const MultiWorkerMirroredStrategy strategy(options);
    return strategy.worker_devices();
  };
  const auto simple = [](std::map<std::string, int> accelerators) {
    SimpleClusterOptions options;
    options.num_accelerators = std::move(accelerators);
    return SimpleClusterResolver({}, options);
  };
  EXPECT_EQ(devices(simple({{"GPU", 2}})), (DeviceList{"GPU:0", "GPU:1"}));
  EXPECT_EQ(devices(simple({{"GPU", 0}})), DeviceList{"CPU:0"});
  EXPECT_EQ(devices(simple({})), DeviceList{"CPU:0"});
  EXPECT_EQ(devices(TfConfigResolver()).size(), 4U);
  EXPECT_EQ(devices({}).size(), 4U);
  EXPECT_THAT(error_of<ConfigError>(Code::invalid_argument,
                                    [&] {
                                      devices(simple({{"GPU", 5}}));
                                    }),
              HasSubstr("GPU:4"));
}

// Slurm counts a node's GPUs, which libtorch need not see.
TEST(MultiWorker, GpusOfTheEnvironmentAreTakenIfTheyAreThere) {
  const SetVariable rank("SLURM_PROCID", "0");
  const SetVariable tasks("SLURM_STEP_NUM_TASKS", "1");
  const SetVariable nodes("SLURM_STEP_NODELIST", "n1");
  const SetVariable tasks_per_node("SLURM_STEP_TASKS_PER_NODE", "1");
  const auto devices = [](const char* visible, int gpus) {
    const SetVariable cuda("CUDA_VISIBLE_DEVICES", visible);
    MultiWorkerOptions options;
    options.device_table = DeviceTable{.cpus = 1, .gpus = gpus};
    const MultiWorkerMirroredStrategy strategy(options);
    EXPECT_THAT(strategy.cluster_resolver().source(), HasSubstr("Slurm"));
    return strategy.worker_devices();
  };
  EXPECT_EQ(devices("0,1", 4), (DeviceList{"GPU:0", "GPU:1"}));
  EXPECT_EQ(devices("0,1", 0), DeviceList{"CPU:0"});
  EXPECT_EQ(devices("0,1", 1), DeviceList{"GPU:0"});
  EXPECT_EQ(devices("NoDevFiles", 0), DeviceList{"CPU:0"});
}

TEST(MultiWorker, NumbersReplicasThroughAllWorkers) {
  std::atomic<int> seen = 0;
  run_workers({.workers = 3, .replicas = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    EXPECT_EQ(strategy.num_workers(), 3);
    EXPECT_EQ(strategy.num_replicas_in_sync(), 6);
    EXPECT_EQ(strategy.is_chief(), strategy.worker_index() == 0);
    strategy.run([&](ReplicaContext& replica) {
      EXPECT_EQ(replica.num_replicas_in_sync(), 6);
      EXPECT_EQ(replica.replica_id_in_sync_group() / 2, strategy.worker_index());
      seen += 1 << replica.replica_id_in_sync_group();
    });
  });
  EXPECT_EQ(seen, 63);
}

// Case 106: a variable initialised randomly has the same value, the chief's, on all replicas.
TEST(MultiWorker, Case106AVariableStartsWithTheChiefsValue) {
  run_workers({.workers = 3, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const Variable v = variable("v", [] { return torch::randn({5}); });
    const auto each = strategy.run([&] { return v.read().clone(); });
    const Tensor mean = strategy.reduce(ReduceOp::mean, each);
    EXPECT_TRUE(torch::allclose(mean, v.read()));
    EXPECT_TRUE(v[0].equal(v[1]));
  });
}

TEST(MultiWorker, AVariableMadeInsideAStepIsTheChiefsToo) {
  run_workers({.workers = 2, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto each = strategy.run(
        [&] { return variable("w", torch::full({1}, 10.0 + strategy.worker_index())).read(); });
    EXPECT_EQ(numbers(each[0]), std::vector<double>{10});
    EXPECT_EQ(numbers(each[1]), std::vector<double>{10});
  });
}

TEST(MultiWorker, ReducesAndGathersOverAllWorkers) {
  run_workers({.workers = 2, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto ids = strategy.run([](ReplicaContext& replica) {
      return torch::full({replica.replica_id_in_sync_group() + 1},
                         replica.replica_id_in_sync_group(), torch::kFloat);
    });
    EXPECT_EQ(numbers(strategy.gather(ids)), (std::vector<double>{0, 1, 1, 2, 2, 2, 3, 3, 3, 3}));
    // The mean over rows: 0 + 2 + 6 + 12 in ten rows.
    EXPECT_EQ(numbers(strategy.reduce(ReduceOp::mean, ids, along(0))), std::vector<double>{2});
    EXPECT_EQ(numbers(strategy.reduce(ReduceOp::sum, ids, along(0))), std::vector<double>{20});
    // A plain tensor counts once a worker.
    const Tensor plain = torch::full({1}, 1.0 + strategy.worker_index());
    EXPECT_EQ(numbers(strategy.reduce(ReduceOp::sum, plain)), std::vector<double>{3});
    EXPECT_EQ(numbers(strategy.reduce(ReduceOp::mean, plain)), std::vector<double>{1.5});
  });
}

// 3.4: reduce(SUM, 1.0) on two workers of one device gives 2.
TEST(MultiWorker, ANumberOfOneReplicaIsAddedUp) {
  run_workers({.workers = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    EXPECT_EQ(strategy.reduce(ReduceOp::sum, 1.0).item<double>(), 2);
    EXPECT_EQ(strategy.reduce(ReduceOp::mean, 5.0).item<double>(), 5);
    EXPECT_EQ(strategy.reduce(ReduceOp::sum, 0.0).item<double>(), 0);
  });
}

TEST(MultiWorker, NumbersOfWorkersMayDiffer) {
  run_workers({.workers = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const double own = strategy.is_chief() ? 4 : 0;
    EXPECT_EQ(strategy.reduce(ReduceOp::sum, own).item<double>(), 4);
    EXPECT_EQ(strategy.reduce(ReduceOp::mean, own).item<double>(), 2);
  });
}

TEST(MultiWorker, AllReduceAndAllGatherAreDifferentiableAcrossWorkers) {
  run_workers({.workers = 2, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    strategy.run([](ReplicaContext& replica) {
      const int id = replica.replica_id_in_sync_group();
      const Tensor x = torch::full({2}, 1.0 + id).requires_grad_();
      const Tensor total = replica.all_reduce(ReduceOp::sum, x * x);
      EXPECT_EQ(numbers(total), (std::vector<double>{30, 30}));
      const Tensor rows = replica.all_gather(x * 1);
      EXPECT_EQ(rows.size(0), 8);
      (total.sum() + (rows * torch::arange(8)).sum()).backward();
      // 4 replicas' losses each contain every replica's x.
      const double own = 4.0 * 2 * (1 + id);
      EXPECT_EQ(numbers(x.grad()), (std::vector<double>{own + 4 * 2 * id, own + 4 * (2 * id + 1)}));
    });
  });
}

TEST(MultiWorker, AssignsInStepsAggregateOverAllWorkers) {
  run_workers({.workers = 2, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto make = [](const char* name, Aggregation how) {
      VariableOptions options;
      options.aggregation = how;
      return variable(name, torch::zeros({1}), options);
    };
    const Variable sum = make("sum", Aggregation::sum);
    const Variable mean = make("mean", Aggregation::mean);
    const Variable first = make("first", Aggregation::only_first_replica);
    strategy.run([&](ReplicaContext& replica) {
      const Tensor id = torch::full({1}, 1.0 + replica.replica_id_in_sync_group());
      sum.assign_add(id);
      mean.assign(id);
      first.assign(id + 10);
      mean.assign_add(2.0);  // the same number everywhere is that number
    });
    EXPECT_EQ(numbers(sum.read()), std::vector<double>{10});
    EXPECT_EQ(numbers(mean.read()), std::vector<double>{4.5});
    EXPECT_EQ(numbers(first.read()), std::vector<double>{11});
  });
}

TEST(MultiWorker, SyncOnReadVariablesAreReadOverAllWorkers) {
  run_workers({.workers = 2, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    VariableOptions options;
    options.synchronization = Synchronization::on_read;
    options.aggregation = Aggregation::sum;
    const Variable count = variable("count", torch::zeros({1}), options);
    strategy.run([&] { count.assign_add(torch::ones({1})); });
    EXPECT_EQ(numbers(count.read()), std::vector<double>{4});
    count.assign(torch::full({1}, 8.0));  // a sum survives the round trip
    EXPECT_EQ(numbers(count.read()), std::vector<double>{8});
    options.aggregation = Aggregation::only_first_replica;
    const Variable mine = variable("mine", torch::zeros({1}), options);
    strategy.run([&](ReplicaContext& replica) {
      mine.assign(torch::full({1}, 5.0 + replica.replica_id_in_sync_group()));
    });
    EXPECT_EQ(numbers(mine.read()), std::vector<double>{5});
  });
}

TEST(MultiWorker, ScattersOfAllWorkersAreApplied) {
  run_workers({.workers = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    VariableOptions options;
    options.aggregation = Aggregation::sum;
    const Variable table = variable("table", torch::zeros({3}), options);
    strategy.run([&](ReplicaContext& replica) {
      const int id = replica.replica_id_in_sync_group();
      table.scatter_add({torch::full({1}, id, torch::kLong), torch::ones({1})});
    });
    EXPECT_EQ(numbers(table.read()), (std::vector<double>{1, 1, 0}));
  });
}

TEST(MultiWorker, AReplicaKnowsItsNumberInItsProcess) {
  run_workers({.workers = 2, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto ids = strategy.run([](ReplicaContext& replica) {
      return std::pair(replica.local_replica_id(), replica.replica_id_in_sync_group());
    });
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(ids.first[i], i);
      EXPECT_EQ(ids.second[i], 2 * strategy.worker_index() + i);
    }
  });
  EXPECT_EQ(get_replica_context()->local_replica_id(), 0);
}

TEST(MultiWorker, ValuesAreMadeByGlobalIds) {
  run_workers({.workers = 2, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto ids = strategy.distribute_values_from_function(
        [](const ValueContext& context) { return context.replica_id_in_sync_group; });
    EXPECT_EQ(ids[0], 2 * strategy.worker_index());
    EXPECT_EQ(ids[1], 2 * strategy.worker_index() + 1);
  });
}

TEST(MultiWorker, AnotherSeedThanTheChiefsIsAWarning) {
  const Logged logged;
  const auto make = [](coll::Session& group, std::optional<std::uint64_t> seed) {
    MultiWorkerOptions options;
    options.session = std::make_shared<coll::Session>(std::move(group));
    options.devices = {"CPU:0"};
    options.replicas.seed = seed;
    const MultiWorkerMirroredStrategy strategy(options);
  };
  coll::run_ranks(3, [&](coll::Session& group) {
    // The last one has none of its own.
    const std::array<std::optional<std::uint64_t>, 3> seeds = {7, 8, {}};
    make(group, seeds[static_cast<std::size_t>(group.rank())]);
  });
  EXPECT_THAT(logged.lines(),
              Contains(HasSubstr("worker 1 was given the seed 8, the chief has 7")));
  EXPECT_THAT(logged.lines(), Not(Contains(HasSubstr("worker 2 was given"))));
}

TEST(MultiWorker, OtherNumbersOfDevicesAreRefused) {
  TestCluster cluster{.workers = 2, .replicas = 2};
  cluster.options.devices = {"CPU:0"};
  const std::string message = error_of<ConfigError>(
      Code::invalid_argument, [&] { run_workers(cluster, [](MultiWorkerMirroredStrategy&) {}); });
  EXPECT_THAT(message, HasSubstr("has 1 replicas, but the 2 workers have 4 together"));
}

TEST(MultiWorker, AnExceptionOfOneStepIsTheOthersPeerLost) {
  std::atomic<int> told = 0;
  EXPECT_THROW(run_workers({.workers = 3},
                           [&](MultiWorkerMirroredStrategy& strategy) {
                             try {
                               // Nobody is still being made when one throws.
                               strategy.reduce(ReduceOp::sum, torch::ones({1}));
                               strategy.run([](ReplicaContext& replica) {
                                 if (replica.replica_id_in_sync_group() == 1) {
                                   throw std::out_of_range("the dog ate it");
                                 }
                                 replica.all_reduce(ReduceOp::sum, torch::ones({1}));
                               });
                             } catch (const PeerLost& lost) {
                               EXPECT_THAT(lost.what(), HasSubstr("the dog ate it"));
                               EXPECT_EQ(lost.culprits(), std::vector<int>{1});
                               ++told;
                             }
                           }),
               std::out_of_range);
  EXPECT_EQ(told, 2);
}

// B7, B8: of two variables that look alike one would silently become the other.
TEST(MultiWorker, VariablesMadeInAnotherOrderAreFoundByName) {
  std::atomic<int> told = 0;
  EXPECT_THROW(run_workers({.workers = 2},
                           [&](MultiWorkerMirroredStrategy& strategy) {
                             const auto scope = strategy.scope();
                             const bool chief = strategy.is_chief();
                             try {
                               variable(chief ? "first" : "second", torch::zeros({2}));
                               variable(chief ? "second" : "first", torch::ones({2}));
                             } catch (const Mismatch& mismatch) {
                               EXPECT_THAT(mismatch.what(), HasSubstr("\"first\""));
                               EXPECT_THAT(mismatch.what(), HasSubstr("\"second\""));
                               ++told;
                               throw;
                             }
                           }),
               Mismatch);
  EXPECT_EQ(told, 2);
}

TEST(MultiWorker, WorkersWithOtherNetsAreFound) {
  EXPECT_THROW(run_workers({.workers = 2},
                           [](MultiWorkerMirroredStrategy& strategy) {
                             strategy.create<torch::nn::Linear>(3, 1 + strategy.worker_index());
                           }),
               Mismatch);
}

TEST(MultiWorker, ACopyThatDiffersIsNamedOnEveryWorker) {
  std::atomic<int> told = 0;
  const auto expect_named = [&](MultiWorkerMirroredStrategy& strategy,
                                const Model<torch::nn::BatchNorm1d>& net) {
    std::vector<torch::nn::Module*> copies;
    for (int i = 0; i < net.size(); ++i) copies.push_back(net[i].get());
    try {
      detail::require_equal_copies(strategy, copies);
    } catch (const Mismatch& mismatch) {
      EXPECT_THAT(mismatch.what(), HasSubstr("replica 3 (worker 1) differ from replica 0's"));
      EXPECT_EQ(mismatch.culprits(), std::vector<int>{1});
      ++told;
    }
  };
  run_workers({.workers = 2, .replicas = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto net = strategy.create<torch::nn::BatchNorm1d>(3);
    // A buffer of the last replica of all.
    if (!strategy.is_chief()) net[1]->running_mean.fill_(1);
    expect_named(strategy, net);
  });
  EXPECT_EQ(told, 2);
}

TEST(MultiWorker, NetsAreTheChiefsOnAllWorkers) {
  std::atomic<std::uint64_t> digest = 0;
  run_workers({.workers = 2, .replicas = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto net = strategy.create<torch::nn::Linear>(3, 2);
    EXPECT_EQ(net.digest(0), net.digest(1));
    std::uint64_t none = 0;
    if (!digest.compare_exchange_strong(none, net.digest(0))) {
      EXPECT_EQ(none, net.digest(0));
    }
  });
}

}  // namespace
}  // namespace lockstep
