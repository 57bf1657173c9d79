// run(): what arrives at the replicas, what comes back, and what goes wrong.
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "run_fixtures.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

INSTANTIATE_TEST_SUITE_P(Executions, RunTest,
                         ::testing::Values(Execution::concurrent, Execution::sequential));

// --- Arguments and results. -----------------------------------------------------------------

TEST_P(RunTest, Case16ResultsOfOneRunAreArgumentsOfTheNext) {
  auto out1 = strategy.run([](ReplicaContext& r) { return r.replica_id_in_sync_group() + 1; });
  EXPECT_THAT(local_results(out1), ElementsAre(1, 2));
  auto out2 = strategy.run(
      [](int x) {
        return std::map<std::string, int>{{"a", 2 * x}, {"b", x * x}};
      },
      out1);
  EXPECT_THAT(local_results(out2.at("a")), ElementsAre(2, 4));
  EXPECT_THAT(local_results(out2.at("b")), ElementsAre(1, 4));
  auto out3 = strategy.run([](int b, int a) { return a + 2 * b + 2; }, out2.at("b"), out2.at("a"));
  EXPECT_THAT(local_results(out3), ElementsAre(6, 14));
}

TEST_P(RunTest, Case12EveryReplicaOnce) {
  std::mutex mutex;
  std::multiset<int> ids;
  std::multiset<std::string> devices;
  std::set<std::thread::id> threads;
  three.run([&](ReplicaContext& replica) {
    const std::lock_guard lock(mutex);
    ids.insert(replica.replica_id_in_sync_group());
    devices.insert(replica.device().short_name());
    threads.insert(std::this_thread::get_id());
    EXPECT_EQ(replica.devices(), DeviceList{replica.device()});
    EXPECT_EQ(replica.num_replicas_in_sync(), 3);
    EXPECT_EQ(&replica.strategy(), &three);
  });
  EXPECT_THAT(ids, ElementsAre(0, 1, 2));
  EXPECT_THAT(devices, ElementsAre("CPU:0", "CPU:1", "CPU:2"));
  EXPECT_THAT(threads, SizeIs(3));
}

TEST_P(RunTest, ReplicaZeroRunsOnTheCallersThreadAndLanesStay) {
  const auto ids = [&] {
    return local_results(three.run([] { return std::this_thread::get_id(); }));
  };
  const auto first = ids();
  EXPECT_EQ(first[0], std::this_thread::get_id());
  EXPECT_EQ(ids(), first);
}

TEST_P(RunTest, ReplicasRunAtTheSameTimeUnlessSequential) {
  // All replicas wait for each other outside of any meeting: only possible together.
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  three.run([&] {
    const int now = ++inside;
    int seen = most.load();
    while (seen < now && !most.compare_exchange_weak(seen, now)) {
    }
    if (!sequential()) {
      while (most.load() < 3) std::this_thread::yield();
    }
    --inside;
  });
  EXPECT_EQ(most, sequential() ? 1 : 3);
}

TEST_P(RunTest, SequentialReplicasTakeTurnsInOrder) {
  if (!sequential()) return;
  std::string order;
  three.run([&](ReplicaContext& replica) {
    for (int phase = 0; phase < 3; ++phase) {
      order += std::to_string(replica_id());
      replica.merge_call([&](Strategy&) { order += 'm'; });
    }
    order += std::to_string(replica_id());
  });
  EXPECT_EQ(order, "012m012m012m012");
}

TEST_P(RunTest, GlobalBatchSize) {
  strategy.run(RunOptions{.global_batch_size = 64},
               [](ReplicaContext& replica) { EXPECT_EQ(replica.global_batch_size(), 64); });
  EXPECT_THAT(wrong_context([&] {
                strategy.run([](ReplicaContext& replica) {
                  static_cast<void>(replica.global_batch_size());
                });
              }),
              HasSubstr("RunOptions"));
  OneDeviceStrategy one("CPU:0");
  EXPECT_EQ(one.run(RunOptions{.global_batch_size = 5},
                    [](ReplicaContext& replica) { return replica.global_batch_size(); })
                .single(),
            5);
}

TEST_P(RunTest, TheExecutionOfOneRun) {
  std::string order;
  three.run(RunOptions{.execution = Execution::sequential}, [&](ReplicaContext& replica) {
    order += std::to_string(replica_id());
    replica.merge_call([](Strategy&) {});
    order += std::to_string(replica_id());
  });
  EXPECT_EQ(order, "012012");
}

TEST_P(RunTest, TorchsStateOfTheCallerHoldsInside) {
  EXPECT_THAT(local_results(three.run([] { return at::GradMode::is_enabled(); })),
              ElementsAre(true, true, true));
  const at::NoGradGuard guard;
  EXPECT_THAT(local_results(three.run([] { return at::GradMode::is_enabled(); })),
              ElementsAre(false, false, false));
  // What a replica changes is its own.
  three.run([] { at::GradMode::set_enabled(replica_id() != 0); });
  EXPECT_THAT(local_results(three.run([] { return at::GradMode::is_enabled(); })),
              ElementsAre(false, false, false));
}

TEST_P(RunTest, ThreadsPerReplica) {
  const int before = at::get_num_threads();
  EXPECT_THAT(local_results(strategy.run([] { return at::get_num_threads(); })), ElementsAre(1, 1));
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST_P(RunTest, Case14Names) {
  const NameScope outer("main");
  auto names = strategy.run([](ReplicaContext& replica) {
    const NameScope inner("foo");
    const std::string a = scoped_name("a");
    const std::string merged = replica.merge_call([](Strategy&) { return scoped_name("m"); });
    return std::vector{a, merged, scoped_name("b")};
  });
  EXPECT_THAT(local_results(names.at(0)), ElementsAre("main/foo/a", "main/replica_1/foo/a"));
  EXPECT_THAT(local_results(names.at(1)), ElementsAre("main/foo/m", "main/foo/m"));
  EXPECT_THAT(local_results(names.at(2)), ElementsAre("main/foo/b", "main/replica_1/foo/b"));
}

TEST(Run, AStrategyMayEndRightAfterItsRun) {
  for (int i = 0; i < 100; ++i) {
    MirroredStrategy strategy(cpus(4));
    EXPECT_EQ(strategy.run([] { return 1; }).size(), 4);
  }
}

TEST(Run, ThreadsPerReplicaIsAnOption) {
  MirroredOptions options = cpus(2);
  options.replicas.threads_per_replica = 2;
  MirroredStrategy strategy(options);
  const int before = at::get_num_threads();
  EXPECT_THAT(local_results(strategy.run([] { return at::get_num_threads(); })), ElementsAre(2, 2));
  EXPECT_EQ(at::get_num_threads(), before);
}

// --- What goes wrong. -------------------------------------------------------------------------

TEST_P(RunTest, Case10ExceptionsKeepTheirType) {
  // (a) in the step function
  EXPECT_THROW(strategy.run([] { throw Planted("a"); }), Planted);
  expect_outside();
  // (b) in the merge function
  EXPECT_THROW(strategy.run([](ReplicaContext& replica) {
    replica.merge_call([](Strategy&) { throw Planted("b"); });
  }),
               Planted);
  expect_outside();
  // (c) in a step function started from a merge function
  EXPECT_THROW(strategy.run([](ReplicaContext& replica) {
    replica.merge_call([](Strategy& s) { s.run([] { throw Planted("c"); }); });
  }),
               Planted);
  expect_outside();
  // (d) in a merge function of that
  EXPECT_THROW(strategy.run([](ReplicaContext& replica) {
    replica.merge_call([](Strategy& s) {
      s.run([](ReplicaContext& inner) { inner.merge_call([](Strategy&) { throw Planted("d"); }); });
    });
  }),
               Planted);
  expect_outside();
  EXPECT_THAT(local_results(strategy.run([] { return replica_id(); })), ElementsAre(0, 1));
}

TEST_P(RunTest, AnyReplicaAtAnyMeeting) {
  for (int thrower = 0; thrower < 3; ++thrower) {
    for (int phase = 0; phase < 4; ++phase) {
      std::atomic<int> finished = 0;
      const auto run = [&] {
        three.run([&](ReplicaContext& replica) {
          for (int merge = 0;; ++merge) {
            if (replica_id() == thrower && merge == phase) {
              throw Planted(std::to_string(thrower) + std::to_string(phase));
            }
            if (merge == 3) break;
            replica.merge_call([](Strategy&) {});
          }
          ++finished;
        });
      };
      try {
        run();
        ADD_FAILURE() << thrower << " at " << phase;
      } catch (const Planted& error) {
        EXPECT_EQ(error.what(), std::to_string(thrower) + std::to_string(phase));
      }
      expect_outside();
      // Before the last meeting nobody can get to the end.
      if (phase < 3) {
        EXPECT_EQ(finished, 0) << thrower << " at " << phase;
      }
      EXPECT_THAT(three.last_errors(), IsEmpty());
      // In merge functions, too.
      EXPECT_THROW(three.run([&](ReplicaContext& replica) {
        for (int merge = 0; merge < 4; ++merge) {
          replica.merge_call([&](Strategy&) {
            if (merge == phase) throw Planted("merge");
          });
        }
      }),
                   Planted);
      expect_outside();
    }
  }
}

TEST_P(RunTest, SequentialReplicaOneIsNeverEntered) {
  if (!sequential()) return;
  std::atomic<int> entered = 0;
  EXPECT_THROW(three.run([&] {
    ++entered;
    throw Planted("first");
  }),
               Planted);
  EXPECT_EQ(entered, 1);
}

TEST_P(RunTest, TheFirstInTimeIsThrownTheOthersAreKept) {
  set_log_level(LogLevel::off);
  // Replica 1 throws only after it was told that replica 0 has.
  const auto run = [&] {
    strategy.run([](ReplicaContext& replica) {
      try {
        replica.merge_call([](Strategy&) {});  // all have begun
        if (replica_id() == 0) throw Planted("first");
        replica.merge_call([](Strategy&) {});
      } catch (const Planted&) {
        throw;
      } catch (...) {
        throw std::out_of_range("second");
      }
    });
  };
  EXPECT_THROW(run(), Planted);
  set_log_level(LogLevel::warning);
  const auto others = strategy.last_errors();
  ASSERT_THAT(others, SizeIs(1));
  EXPECT_THROW(std::rethrow_exception(others[0]), std::out_of_range);
  strategy.run([] {});
  EXPECT_THAT(strategy.last_errors(), IsEmpty());
}

TEST_P(RunTest, AStepFunctionThatSwallowsTheStopMeetsNobody) {
  EXPECT_THROW(strategy.run([](ReplicaContext& replica) {
    if (replica_id() == 1) throw Planted("x");
    for (int i = 0; i < 3; ++i) {
      try {
        replica.merge_call([](Strategy&) { ADD_FAILURE() << "met"; });
      } catch (...) {  // NOLINT(bugprone-empty-catch): what careless code does
      }
    }
  }),
               Planted);
}

TEST_P(RunTest, ABackwardCutShortLeavesAutogradUsable) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(strategy.run([](ReplicaContext& replica) {
      const Tensor x = torch::ones({}, torch::requires_grad());
      const Tensor y = replica.all_reduce(ReduceOp::sum, x);
      if (replica_id() == 0) throw Planted("instead of backward");
      y.backward();  // waits for replica 0, which will not come
    }),
                 Planted);
    auto gradients = strategy.run([](ReplicaContext& replica) {
      const Tensor x = torch::ones({}, torch::requires_grad());
      replica.all_reduce(ReduceOp::sum, x).backward();
      return x.grad();
    });
    EXPECT_THAT(numbers(gradients), ElementsAre(2, 2));
  }
}

TEST_P(RunTest, Case11DifferentLengths) {
  EXPECT_THAT(
      wrong_value([&] {
        strategy.run([] { return std::vector<int>(static_cast<std::size_t>(replica_id())); });
      }),
      AllOf(HasSubstr("different structure"), HasSubstr("replica 1"), HasSubstr("1 instead of 0")));
}

TEST_P(RunTest, UnequalNumbersOfMergeCallsAreATable) {
  for (int longer = 0; longer < 3; ++longer) {
    const std::string message = wrong_context([&] {
      three.run([&](ReplicaContext& replica) {
        const auto meet = [&] { replica.merge_call([](Strategy&) {}); };
        meet();
        if (replica_id() == longer) meet();
      });
    });
    EXPECT_THAT(message,
                AllOf(HasSubstr("MirroredStrategy"), HasSubstr("different numbers of merge calls"),
                      HasSubstr("replica " + std::to_string(longer) +
                                " (CPU:" + std::to_string(longer) + "): waits in merge call 2 at "),
                      HasSubstr("run_test.cc"), HasSubstr("Every replica must make the same")));
    // At least the one that ended the run had returned by then.
    EXPECT_THAT(message, HasSubstr("returned after 1 merge call"));
    expect_outside();
  }
}

TEST_P(RunTest, DifferentPlacesAreATable) {
  bool ran = false;
  std::atomic<int> line = 0;
  const std::string message = wrong_context([&] {
    strategy.run([&](ReplicaContext& replica) {
      const auto merged = [&](Strategy&) { ran = true; };
      line = __LINE__ + 1;
      if (replica_id() == 0) replica.merge_call(merged);
      if (replica_id() == 1) replica.merge_call(merged);
    });
  });
  EXPECT_THAT(message, AllOf(HasSubstr("different merge calls"),
                             HasSubstr("run_test.cc:" + std::to_string(line)),
                             HasSubstr("run_test.cc:" + std::to_string(line + 1)),
                             HasSubstr("replica 0"), HasSubstr("replica 1")));
  EXPECT_FALSE(ran);
}

struct MergeAlpha {
  void operator()(Strategy&) const { ADD_FAILURE(); }
};
struct MergeBeta {
  void operator()(Strategy&) const { ADD_FAILURE(); }
};

TEST_P(RunTest, DifferentMergeFunctionsAreATable) {
  const std::string message = wrong_context([&] {
    strategy.run([&](ReplicaContext& replica) {
      const Here here = Here::now();
      if (replica_id() == 0) {
        replica.merge_at(here, MergeAlpha());
      } else {
        replica.merge_at(here, MergeBeta());
      }
    });
  });
  EXPECT_THAT(message, AllOf(HasSubstr("different merge calls"), HasSubstr("MergeAlpha"),
                             HasSubstr("MergeBeta")));
}

TEST_P(RunTest, Case15MergeCallFromAnotherThread) {
  strategy.run([](ReplicaContext& replica) {
    std::thread([&] {
      EXPECT_THAT(wrong_context([&] { replica.merge_call([](Strategy&) {}); }),
                  AllOf(HasSubstr("merge_call"), HasSubstr("thread")));
      EXPECT_THAT(wrong_context([&] { replica.all_reduce(ReduceOp::sum, torch::ones({})); }),
                  HasSubstr("all_reduce"));
    }).join();
    replica.merge_call([](Strategy&) {});
  });
}

TEST_P(RunTest, MergeCallInsideAMergeFunction) {
  strategy.run([](ReplicaContext& replica) {
    replica.merge_call([&](Strategy&) {
      EXPECT_EQ(get_replica_context(), nullptr);
      EXPECT_THAT(wrong_context([&] { replica.merge_call([](Strategy&) {}); }),
                  HasSubstr("Need to be inside run()"));
    });
  });
}

TEST_P(RunTest, AnotherReplicasContext) {
  std::atomic<ReplicaContext*> zero = nullptr;
  strategy.run([&](ReplicaContext& replica) {
    if (replica_id() == 0) zero = &replica;
    replica.merge_call([](Strategy&) {});
    if (replica_id() == 1) {
      EXPECT_THAT(wrong_context([&] { zero.load()->merge_call([](Strategy&) {}); }),
                  HasSubstr("Mismatching ReplicaContext"));
    }
    replica.merge_call([](Strategy&) {});
  });
  MirroredStrategy other(cpus(1));
  strategy.run([&](ReplicaContext& replica) {
    EXPECT_THAT(wrong_context([&] { get_strategy().run([] {}); }), HasSubstr("cross-replica"));
    static_cast<void>(replica);
  });
}

TEST_P(RunTest, AllGatherIsChecked) {
  strategy.run([](ReplicaContext& replica) {
    EXPECT_THAT(wrong_value([&] { replica.all_gather(torch::ones({})); }), HasSubstr("scalar"));
    EXPECT_THAT(wrong_value([&] { replica.all_gather(torch::ones({2}), 1); }), HasSubstr("axis 1"));
    error_of<Unsupported>(Code::unimplemented,
                          [&] { replica.all_gather(torch::ones({2}).to_sparse()); });
  });
}

}  // namespace
}  // namespace lockstep
