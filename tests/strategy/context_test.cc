// The context of a thread: inside and outside of scopes, the default strategy, and which calls are
// allowed where.
#include <thread>

#include "fixtures.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Contexts, Case1AFreshThreadIsTheDefaultReplica) {
  std::thread([] {
    expect_outside();
    EXPECT_EQ(replica_id(), 0);
    EXPECT_EQ(&get_replica_context()->strategy(), &get_strategy());
  }).join();
}

TEST(Contexts, Case2TheDefaultStateIsBackAfterAScope) {
  MirroredStrategy strategy(cpus(2));
  {
    auto scope = strategy.scope();
    EXPECT_TRUE(has_strategy());
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_EQ(get_replica_context(), nullptr);
    EXPECT_EQ(&get_strategy(), &strategy);
    strategy.run([&](ReplicaContext& replica) {
      EXPECT_TRUE(has_strategy());
      EXPECT_FALSE(in_cross_replica_context());
      EXPECT_EQ(get_replica_context(), &replica);
      EXPECT_EQ(&get_strategy(), &strategy);
    });
    EXPECT_TRUE(in_cross_replica_context());
  }
  expect_outside();
}

TEST(Contexts, ExactlyOneOfTheTwoContextsIsNull) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_EQ(get_cross_replica_context(), nullptr);
  const auto scope = strategy.scope();
  EXPECT_EQ(get_cross_replica_context(), &strategy);
  strategy.run([&](ReplicaContext& replica) {
    EXPECT_EQ(get_cross_replica_context(), nullptr);
    replica.merge_call([&](Strategy&) {
      EXPECT_EQ(get_cross_replica_context(), &strategy);
      EXPECT_EQ(get_replica_context(), nullptr);
    });
  });
}

TEST(Contexts, Case3RunOutsideOfAScope) {
  MirroredStrategy strategy(cpus(2));
  auto ids = strategy.run([](ReplicaContext& replica) {
    EXPECT_TRUE(has_strategy());
    return replica.replica_id_in_sync_group();
  });
  EXPECT_THAT(local_results(ids), ElementsAre(0, 1));
  expect_outside();
}

TEST(Contexts, Case5MergeCallOfTheDefaultReplica) {
  const std::string text = get_replica_context()->merge_call(
      [](Strategy& strategy, const PerReplica<std::string>& word) {
        EXPECT_TRUE(in_cross_replica_context());
        EXPECT_EQ(&get_strategy(), &strategy);
        EXPECT_FALSE(has_strategy());
        return "foo_" + word.single();
      },
      std::string("bar"));
  EXPECT_EQ(text, "foo_bar");
  expect_outside();
}

TEST(Contexts, Case6ScopesNest) {
  MirroredStrategy a(cpus(2));
  MirroredStrategy b(cpus(2));
  {
    auto first = a.scope();
    auto second = a.scope();
    {
      auto third = a.scope();
      EXPECT_EQ(&get_strategy(), &a);
      EXPECT_THAT(wrong_context([&] { auto other = b.scope(); }), HasSubstr("Mixing different"));
    }
    EXPECT_EQ(&get_strategy(), &a);
    EXPECT_TRUE(in_cross_replica_context());
  }
  expect_outside();
  auto again = b.scope();
  EXPECT_EQ(&get_strategy(), &b);
}

TEST(Contexts, Case7SetStrategyInsideAScope) {
  MirroredStrategy a(cpus(2));
  MirroredStrategy b(cpus(2));
  auto scope = a.scope();
  for (Strategy* other : std::initializer_list<Strategy*>{&a, &b, nullptr}) {
    EXPECT_THAT(wrong_context([&] { set_strategy(other); }),
                HasSubstr("Must not be called inside a strategy scope"));
  }
  EXPECT_EQ(&get_strategy(), &a);
}

TEST(Contexts, SetStrategyLastsUntilTheNext) {
  MirroredStrategy a(cpus(2));
  MirroredStrategy b(cpus(2));
  set_strategy(&a);
  EXPECT_EQ(&get_strategy(), &a);
  EXPECT_TRUE(in_cross_replica_context());
  EXPECT_EQ(a.run([] { return 1; }).size(), 2);
  {
    auto inner = a.scope();
    EXPECT_THAT(wrong_context([&] { set_strategy(nullptr); }), HasSubstr("Must not be called"));
  }
  set_strategy(&b);
  EXPECT_EQ(&get_strategy(), &b);
  set_strategy(nullptr);
  expect_outside();
}

/// Every verb across replicas, on a strategy with a variable of its own.
void use_all_verbs(Strategy& strategy, const Variable& v) {
  const PerReplica<Tensor> each({torch::ones({}), torch::ones({})}, strategy.worker_devices());
  EXPECT_EQ(number(strategy.reduce(ReduceOp::sum, each)), 2);
  EXPECT_THAT(numbers(strategy.reduce_to(ReduceOp::sum, each, v)), ElementsAre(2, 2));
  EXPECT_THAT(numbers(strategy.batch_reduce_to(ReduceOp::mean, {{each, v}}).at(0)),
              ElementsAre(1, 1));
  strategy.update(v, [](Component& copy) { copy.assign(3); });
  EXPECT_THAT(numbers(v), ElementsAre(3, 3));
  EXPECT_EQ(strategy.update_non_slot(strategy.non_slot_devices({v}), [] { return 1; }).size(), 2);
}

TEST(Contexts, Case9VerbsInTheDefaultStateAndInTheirScope) {
  MirroredStrategy strategy(cpus(2));
  MirroredStrategy other(cpus(2));
  const Variable v = [&] {
    auto scope = strategy.scope();
    return variable("v", 0.0);
  }();
  use_all_verbs(strategy, v);
  expect_outside();
  {
    auto scope = strategy.scope();
    use_all_verbs(strategy, v);
  }
  auto scope = other.scope();
  const PerReplica<Tensor> each({torch::ones({}), torch::ones({})}, strategy.worker_devices());
  const auto mixing = HasSubstr("Mixing different");
  EXPECT_THAT(wrong_context([&] { strategy.reduce(ReduceOp::sum, each); }), mixing);
  EXPECT_THAT(wrong_context([&] { strategy.reduce(ReduceOp::mean, each, along(0)); }), mixing);
  EXPECT_THAT(wrong_context([&] { strategy.reduce_to(ReduceOp::sum, each, "CPU:0"); }), mixing);
  EXPECT_THAT(wrong_context([&] { strategy.batch_reduce_to(ReduceOp::sum, {{each, v}}); }), mixing);
  EXPECT_THAT(wrong_context([&] { strategy.update(v, [](Component&) {}); }), mixing);
  EXPECT_THAT(wrong_context([&] { strategy.update_non_slot({{"CPU:0"}}, [] {}); }), mixing);
  EXPECT_THAT(wrong_context([&] { strategy.broadcast(torch::ones({})); }), mixing);
  EXPECT_THAT(wrong_context([&] { strategy.gather(each); }), mixing);
  EXPECT_THAT(wrong_context([&] { strategy.run([] {}); }), mixing);
  EXPECT_THAT(wrong_context([&] { strategy.fetch(torch::ones({})); }), mixing);
  EXPECT_THAT(
      wrong_context([&] { strategy.distribute_values_from_function([](auto) { return 1; }); }),
      mixing);
  EXPECT_THAT(wrong_context([&] { static_cast<void>(v.read()); }), mixing);
  EXPECT_THAT(wrong_context([&] { v.assign(1); }), mixing);
}

TEST(Contexts, VerbsInsideAStepFunctionNameMergeCall) {
  MirroredStrategy strategy(cpus(2));
  const Variable v = [&] {
    auto scope = strategy.scope();
    return variable("v", 0.0);
  }();
  strategy.run([&] {
    const PerReplica<Tensor> each({torch::ones({}), torch::ones({})}, strategy.worker_devices());
    const auto words = AllOf(HasSubstr("cross-replica context"), HasSubstr("merge_call()"));
    EXPECT_THAT(wrong_context([&] { strategy.reduce(ReduceOp::sum, each); }), words);
    EXPECT_THAT(wrong_context([&] { strategy.reduce_to(ReduceOp::sum, each, v); }), words);
    EXPECT_THAT(wrong_context([&] { strategy.update(v, [](Component&) {}); }), words);
    EXPECT_THAT(wrong_context([&] { strategy.run([] {}); }), words);
    EXPECT_THAT(wrong_context([&] { auto scope = strategy.scope(); }), words);
    EXPECT_THAT(wrong_context([&] { strategy.fetch(v); }), words);
    EXPECT_THAT(wrong_context([&] { v.restore_value(torch::ones({})); }), words);
    EXPECT_THAT(wrong_context([&] { static_cast<void>(v.export_value()); }), words);
    EXPECT_THAT(wrong_context([&] { set_strategy(nullptr); }), HasSubstr("Must not be called"));
  });
  EXPECT_THAT(numbers(v), ElementsAre(0, 0));
}

TEST(Contexts, AScopeOfAnotherStrategyInsideAStep) {
  MirroredStrategy strategy(cpus(2));
  MirroredStrategy other(cpus(2));
  strategy.run([&] {
    EXPECT_THAT(wrong_context([&] { auto scope = other.scope(); }), HasSubstr("Mixing different"));
    EXPECT_THAT(wrong_context([&] { other.run([] {}); }), HasSubstr("Mixing different"));
  });
}

// --- The default strategy. ------------------------------------------------------------------

TEST(DefaultStrategy, RunsInline) {
  Strategy& strategy = get_strategy();
  EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
  const auto thread = std::this_thread::get_id();
  auto doubled = strategy.run(
      [&](int x) {
        EXPECT_EQ(std::this_thread::get_id(), thread);
        EXPECT_FALSE(has_strategy());
        return 2 * x;
      },
      21);
  EXPECT_EQ(doubled.single(), 42);
  EXPECT_EQ(number(strategy.reduce(ReduceOp::sum, torch::ones({}))), 1);
  EXPECT_EQ(number(get_replica_context()->all_reduce(ReduceOp::sum, torch::full({}, 7))), 7);
  expect_outside();
}

TEST(DefaultStrategy, ItsScopeStaysInTheReplica) {
  Strategy& strategy = get_strategy();
  {
    auto scope = strategy.scope();
    EXPECT_FALSE(in_cross_replica_context());
    EXPECT_FALSE(has_strategy());
  }
  MirroredStrategy mirrored(cpus(2));
  auto scope = mirrored.scope();
  EXPECT_THAT(wrong_context([&] { auto inner = strategy.scope(); }), HasSubstr("Must not nest"));
}

TEST(DefaultStrategy, VariablesArePlain) {
  auto v = variable("v", torch::ones({2}));
  EXPECT_EQ(v.size(), 1);
  v.assign_add(torch::full({2}, 2));
  EXPECT_THAT(numbers(v.read()), ElementsAre(3, 3));
  // No strategy, nothing to synchronize.
  EXPECT_EQ(number(variable("n", 1.0, {.synchronization = Synchronization::none})), 1);
}

TEST(DefaultStrategy, VerbsInItsMergeFunctionAreOfAnotherStrategy) {
  MirroredStrategy strategy(cpus(2));
  get_replica_context()->merge_call([&](Strategy&) {
    EXPECT_THAT(wrong_context([&] { strategy.broadcast(torch::ones({})); }),
                HasSubstr("Need to be inside scope()"));
  });
  expect_outside();
}

TEST(DefaultStrategy, HasNoDevicesAndNoCopies) {
  Strategy& strategy = get_strategy();
  wrong_context([&] { static_cast<void>(strategy.worker_devices()); });
  wrong_context([&] { static_cast<void>(strategy.parameter_devices()); });
  wrong_context([&] { static_cast<void>(strategy.clone()); });
}

}  // namespace
}  // namespace lockstep
