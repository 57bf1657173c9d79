// What workers are told that do not ask for the same: the user's verb, names, shapes and types of
// all of them, and the lines of the user's program.
#include "lockstep/coll/join.h"
#include "lockstep/distribution_strategy.h"
#include "lockstep/model.h"
#include "lockstep/testing.h"
#include "tests/strategy/fixtures.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_workers;

/// The Mismatch of one worker, of two that make different calls.
template <class F>
std::string disagreement(F&& fn, int replicas = 1) {
  std::string message;
  try {
    run_workers({.workers = 2, .replicas = replicas}, [&](MultiWorkerMirroredStrategy& strategy) {
      const auto scope = strategy.scope();
      fn(strategy);
    });
    ADD_FAILURE() << "no exception";
  } catch (const Mismatch& error) {
    message = error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
  }
  EXPECT_THAT(message, AllOf(Not(HasSubstr("shape ")), Not(HasSubstr("collective_all_reduce.cc")),
                             Not(HasSubstr("workers.cc")), Not(HasSubstr("strategy.cc")),
                             Not(HasSubstr("strategy.h"))));
  return message;
}

std::string at_line(int line) { return " at disagreement_test.cc:" + std::to_string(line); }

PerReplica<Tensor> each(MultiWorkerMirroredStrategy& strategy, const Tensor& value) {
  return strategy.run([&] { return value.clone(); });
}

TEST(Disagreement, GatherNamesShapesAndTheLine) {
  int line = 0;
  const std::string message = disagreement([&](MultiWorkerMirroredStrategy& strategy) {
    const auto own = each(strategy, torch::zeros({1, 1 + strategy.worker_index()}, torch::kLong));
    line = __LINE__ + 1;
    static_cast<void>(strategy.gather(own));
  });
  EXPECT_THAT(message, HasSubstr("rank 0: gather int64[1, 1]" + at_line(line)));
  EXPECT_THAT(message, HasSubstr("rank 1: gather int64[1, 2]" + at_line(line)));
}

TEST(Disagreement, ReduceNamesTheOperationAndBothLines) {
  int sum = 0;
  int mean = 0;
  const std::string message = disagreement(
      [&](MultiWorkerMirroredStrategy& strategy) {
        const auto own = each(strategy, torch::zeros({3}));
        if (strategy.is_chief()) {
          sum = __LINE__ + 1;
          static_cast<void>(strategy.reduce(ReduceOp::sum, own));
        } else {
          mean = __LINE__ + 1;
          static_cast<void>(strategy.reduce(ReduceOp::mean, own));
        }
      },
      2);
  EXPECT_THAT(message, HasSubstr("rank 0: reduce SUM float32[3]" + at_line(sum)));
  EXPECT_THAT(message, HasSubstr("rank 1: reduce MEAN float32[3]" + at_line(mean)));
}

TEST(Disagreement, VerbsThatAreNotTheSame) {
  const std::string message = disagreement([&](MultiWorkerMirroredStrategy& strategy) {
    const auto own = each(strategy, torch::zeros({2}, torch::kDouble));
    if (strategy.is_chief()) {
      static_cast<void>(strategy.reduce_to(ReduceOp::sum, own, Destinations("CPU:0")));
    } else {
      strategy.barrier();
    }
  });
  EXPECT_THAT(message, HasSubstr("rank 0: reduce_to SUM float64[2] at disagreement_test.cc:"));
  EXPECT_THAT(message, HasSubstr("rank 1: barrier at disagreement_test.cc:"));
}

TEST(Disagreement, OfAPlainTensorAndOfManyAtOnce) {
  const std::string plain = disagreement([&](MultiWorkerMirroredStrategy& strategy) {
    static_cast<void>(
        strategy.reduce(ReduceOp::sum, torch::zeros({1 + strategy.worker_index(), 2})));
  });
  EXPECT_THAT(plain, HasSubstr("rank 0: reduce SUM of a plain tensor float32[1, 2] at"));
  EXPECT_THAT(plain, HasSubstr("rank 1: reduce SUM of a plain tensor float32[2, 2] at"));
  const std::string many = disagreement([&](MultiWorkerMirroredStrategy& strategy) {
    const std::vector<ReducePair> pairs = {
        {each(strategy, torch::zeros({2})), Destinations("CPU:0")},
        {each(strategy, torch::zeros({3 + strategy.worker_index()})), Destinations("CPU:0")}};
    static_cast<void>(strategy.batch_reduce_to(ReduceOp::sum, pairs));
  });
  EXPECT_THAT(many, HasSubstr("rank 1: batch_reduce_to SUM of 2 tensors float32[4], float32[2]"));
}

TEST(Disagreement, InStepFunctionsItIsTheReplicasCall) {
  int line = 0;
  const std::string reduced = disagreement(
      [&](MultiWorkerMirroredStrategy& strategy) {
        strategy.run([&](ReplicaContext& replica) {
          const Tensor own = torch::zeros({2 + strategy.worker_index()});
          if (replica.replica_id_in_sync_group() == 0) line = __LINE__ + 1;
          static_cast<void>(replica.all_reduce(ReduceOp::sum, own));
        });
      },
      2);
  EXPECT_THAT(reduced, HasSubstr("rank 0: all_reduce SUM float32[2] at disagreement_test.cc:"));
  EXPECT_THAT(reduced, HasSubstr("rank 1: all_reduce SUM float32[3]"));
  const std::string gathered = disagreement([&](MultiWorkerMirroredStrategy& strategy) {
    strategy.run([&](ReplicaContext& replica) {
      return replica.all_gather(torch::zeros({2, 1 + strategy.worker_index()}));
    });
  });
  EXPECT_THAT(gathered, HasSubstr("rank 1: all_gather float32[2, 2] at disagreement_test.cc:"));
}

TEST(Disagreement, VariablesAreNamed) {
  const std::string made = disagreement([&](MultiWorkerMirroredStrategy& strategy) {
    static_cast<void>(variable("w", torch::zeros({2, 1 + strategy.worker_index()})));
  });
  EXPECT_THAT(made, HasSubstr("rank 0: variable \"w\" float32[2, 1] at disagreement_test.cc:"));
  EXPECT_THAT(made, HasSubstr("rank 1: variable \"w\" float32[2, 2] at disagreement_test.cc:"));
  const std::string written = disagreement([&](MultiWorkerMirroredStrategy& strategy) {
    VariableOptions options;
    options.aggregation = Aggregation::sum;
    const Variable a = variable("loss", torch::zeros({2}), options);
    const Variable b = variable("accuracy", torch::zeros({3}), options);
    strategy.run([&] {
      if (strategy.is_chief()) {
        a.assign_add(torch::ones({2}));
      } else {
        b.assign_add(torch::ones({3}));
      }
    });
  });
  EXPECT_THAT(written,
              HasSubstr("rank 0: assign_add \"loss\" SUM float32[2] at disagreement_test.cc"));
  EXPECT_THAT(written, HasSubstr("rank 1: assign_add \"accuracy\" SUM float32[3]"));
}

/// What the message says of worker 0, which calls fn(strategy), while worker 1 is in a barrier.
template <class F>
std::string against_a_barrier(F&& fn) {
  return disagreement([&](MultiWorkerMirroredStrategy& strategy) {
    if (strategy.is_chief()) {
      fn(strategy);
    } else {
      strategy.barrier();
    }
  });
}

TEST(Disagreement, OfRandomNumbersNamesTheLine) {
  EXPECT_THAT(
      against_a_barrier([](MultiWorkerMirroredStrategy& strategy) { strategy.manual_seed(7); }),
      HasSubstr("rank 0: manual_seed at disagreement_test.cc:"));
  EXPECT_THAT(against_a_barrier([](MultiWorkerMirroredStrategy& strategy) {
                static_cast<void>(strategy.generator_state());
              }),
              AllOf(HasSubstr("rank 0: generator_state uint8[1, "),
                    HasSubstr("] at disagreement_test.cc:")));
}

/// The values of all workers are known, and one of them differs: where the verb was called.
TEST(Disagreement, OfValuesNamesTheLine) {
  int line = 0;
  const std::string seeds = disagreement([&](MultiWorkerMirroredStrategy& strategy) {
    line = __LINE__ + 1;
    strategy.manual_seed(7 + static_cast<std::uint64_t>(strategy.worker_index()));
  });
  EXPECT_THAT(seeds, HasSubstr("worker 0 has seed 7, worker 1 has seed 8, at "
                               "disagreement_test.cc:" +
                               std::to_string(line) + ". All workers must run"));
}

TEST(Disagreement, OfAVariableThatIsConvertedShowsNoLineOfLockstep) {
  const std::string message = disagreement([&](MultiWorkerMirroredStrategy& strategy) {
    VariableOptions options;
    options.synchronization = Synchronization::on_read;
    options.aggregation = Aggregation::sum;
    const Variable hits = variable("hits", torch::zeros({2}), options);
    if (strategy.is_chief()) {
      const Tensor value = hits;
    } else {
      strategy.barrier();
    }
  });
  EXPECT_THAT(message, AllOf(HasSubstr("rank 0: read \"hits\""), Not(HasSubstr("variable.h"))));
}

/// What the strategies call themselves has a name even where it has no line.
TEST(Disagreement, OfWhatHasNoLineNamesTheCall) {
  std::string message;
  try {
    coll::run_ranks(2, [](coll::Session& group) {
      if (group.rank() == 0) {
        MultiWorkerOptions options;
        options.session = std::make_shared<coll::Session>(std::move(group));
        const MultiWorkerMirroredStrategy strategy(options);
      } else {
        group.barrier();
      }
    });
  } catch (const Mismatch& error) {
    message = error.what();
  }
  EXPECT_THAT(message, HasSubstr("rank 0: MultiWorkerMirroredStrategy seed"));
}

TEST(Disagreement, OfAModelNamesTheLine) {
  const auto of_a_net = [](const auto& verb) {
    return disagreement([&](MultiWorkerMirroredStrategy& strategy) {
      const auto net = strategy.create<torch::nn::BatchNorm1d>(3);
      if (strategy.is_chief()) {
        verb(net);
      } else {
        strategy.barrier();
      }
    });
  };
  EXPECT_THAT(of_a_net([](const auto& net) { net.sync_parameters(); }),
              HasSubstr("rank 0: sync_parameters the parameters of the net at "
                        "disagreement_test.cc:"));
  EXPECT_THAT(of_a_net([](const auto& net) { net.sync_buffers(); }),
              HasSubstr("rank 0: sync_buffers running_mean float32[3] at disagreement_test.cc:"));
  EXPECT_THAT(of_a_net([](const auto& net) { net.sync_buffers(BufferSync::mean); }),
              HasSubstr("rank 0: sync_buffers MEAN float32[3] at disagreement_test.cc:"));
}

TEST(Disagreement, OfAVariableThatIsReadNamesTheLine) {
  const auto of_a_metric = [](const auto& verb) {
    return disagreement([&](MultiWorkerMirroredStrategy& strategy) {
      VariableOptions options;
      options.synchronization = Synchronization::on_read;
      options.aggregation = Aggregation::sum;
      const Variable hits = variable("hits", torch::zeros({2}), options);
      if (strategy.is_chief()) {
        verb(strategy, hits);
      } else {
        strategy.barrier();
      }
    });
  };
  EXPECT_THAT(of_a_metric([](Strategy& strategy, const Variable& hits) {
                static_cast<void>(strategy.fetch(hits));
              }),
              AllOf(HasSubstr("rank 0: fetch"), HasSubstr(" at disagreement_test.cc:")));
  EXPECT_THAT(
      of_a_metric([](Strategy&, const Variable& hits) { static_cast<void>(hits.export_value()); }),
      AllOf(HasSubstr("rank 0: export_value \"hits\""), HasSubstr(" at disagreement_test.cc:")));
}

TEST(Disagreement, OfTheOlderSpellingsNamesTheUsersLine) {
  const auto by_towers = [](const auto& verb) {
    return against_a_barrier([&](MultiWorkerMirroredStrategy& strategy) {
      verb(DistributionStrategy(strategy), each(strategy, torch::zeros({3})));
    });
  };
  EXPECT_THAT(by_towers([](const DistributionStrategy& towers, const PerReplica<Tensor>& value) {
                static_cast<void>(towers.reduce("sum", value));
              }),
              HasSubstr("rank 0: reduce_to SUM float32[3] at disagreement_test.cc:"));
  EXPECT_THAT(by_towers([](const DistributionStrategy& towers, const PerReplica<Tensor>& value) {
                const std::vector<TowerReducePair> pairs = {{value, std::nullopt}};
                static_cast<void>(towers.batch_reduce("mean", pairs));
              }),
              HasSubstr("rank 0: batch_reduce_to MEAN float32[3] at disagreement_test.cc:"));
}

// What differs may be neither a shape nor a line: then it is shown all the same.
TEST(Disagreement, ThatReadsTheSameIsShownInFull) {
  std::string message;
  try {
    coll::SessionOptions session;
    run_workers({.workers = 2, .session = session}, [&](MultiWorkerMirroredStrategy& strategy) {
      const auto own = each(strategy, torch::zeros({2, 2}));
      // One along 0, the other along 1, from the same line.
      static_cast<void>(strategy.gather(own, strategy.worker_index()));
    });
    ADD_FAILURE() << "no exception";
  } catch (const Mismatch& error) {
    message = error.what();
  }
  EXPECT_THAT(message, HasSubstr("rank 0: gather float32[2, 2] at"));
  EXPECT_THAT(message, HasSubstr("rank 1: gather along axis 1 float32[2, 2] at"));
}

}  // namespace
}  // namespace lockstep
