// Where a thread stands: scopes, the default strategy, what may be called where.
#include <mutex>
#include <stdexcept>
#include <thread>

#include "fixtures.h"
#include "tests/cluster/variables.h"

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

// --- Scope objects. -------------------------------------------------------------------------

TEST(Scopes, EndEarlyAndMove) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  Scope moved = std::move(scope);
  EXPECT_TRUE(has_strategy());
  moved.exit();
  expect_outside();
  moved.exit();  // once is enough
  expect_outside();
}

TEST(Scopes, OutOfOrderIsRefused) {
  MirroredStrategy strategy(cpus(2));
  auto outer = strategy.scope();
  auto inner = strategy.scope();
  EXPECT_THAT(wrong_context([&] { outer.exit(); }), HasSubstr("not the innermost"));
  inner.exit();
  outer.exit();
  expect_outside();
}

/// fn enters a scope that lives until the end of a block; exit() of `outer` is refused in there.
template <class Enter>
void expect_refused_inside(Scope& outer, const char* outer_name, const char* inner_name,
                           const Enter& enter) {
  const auto inner = enter();
  EXPECT_THAT(wrong_context([&] { outer.exit(); }),
              AllOf(HasSubstr(outer_name), HasSubstr(inner_name)));
  EXPECT_TRUE(in_cross_replica_context());
}

TEST(Scopes, ExitInsideAnyOtherKindNamesBoth) {
  MirroredStrategy strategy(cpus(2));
  const auto keep = [](const NextCreator& next, VariableRequest request) {
    return next(std::move(request));
  };
  auto outer = strategy.scope();
  const char* const name = "scope() of MirroredStrategy";
  expect_refused_inside(outer, name, "DeviceScope(\"CPU:1\")",
                        [] { return std::make_unique<DeviceScope>("CPU:1"); });
  expect_refused_inside(outer, name, "VariableCreatorScope",
                        [&] { return std::make_unique<VariableCreatorScope>(keep); });
  expect_refused_inside(outer, name, "NameScope(\"layer\")",
                        [] { return std::make_unique<NameScope>("layer"); });
  expect_refused_inside(outer, name, "colocate_vars_with(CPU:0, CPU:1)", [&] {
    return strategy.colocate_vars_with(DeviceList{"CPU:0", "CPU:1"});
  });
  expect_refused_inside(outer, name, "tower_local_var_scope(sum)",
                        [&] { return strategy.tower_local_var_scope("sum"); });
  auto tower_local = strategy.tower_local_var_scope("mean");
  expect_refused_inside(tower_local, "tower_local_var_scope(mean)", "colocate_vars_with(CPU:1)",
                        [&] { return strategy.colocate_vars_with("CPU:1"); });
  tower_local.exit();
  outer.exit();
  expect_outside();
}

TEST(Scopes, ExitInAStepFunctionOrOnAnotherThreadIsRefused) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  strategy.run([&](ReplicaContext& replica) {
    wrong_context([&] { scope.exit(); });
    EXPECT_EQ(get_replica_context(), &replica);
  });
  std::thread([&] {
    EXPECT_THAT(wrong_context([&] { scope.exit(); }), HasSubstr("another thread"));
  }).join();
  EXPECT_EQ(&get_strategy(), &strategy);
  scope.exit();
  expect_outside();
}

// Destructors do not throw: they log both scopes, and the thread is right afterwards.
TEST(Scopes, DestroyedOutOfOrderLeaveTheThreadRight) {
  MirroredStrategy strategy(cpus(2));
  const Logged logged;
  {
    auto outer = std::make_unique<DeviceScope>("CPU:0");
    auto inner = std::make_unique<DeviceScope>("CPU:1");
    outer.reset();
    EXPECT_THAT(logged.lines, ElementsAre(AllOf(HasSubstr("DeviceScope(\"CPU:0\") is not"),
                                                HasSubstr("DeviceScope(\"CPU:1\") was"))));
    EXPECT_EQ(current_device(), Device("CPU:1").str());
    inner.reset();
    expect_outside();
  }
  {
    auto outer = std::make_unique<NameScope>("a");
    auto middle = std::make_unique<NameScope>("b");
    auto scope = std::make_unique<Scope>(strategy.scope());
    outer.reset();
    EXPECT_EQ(&get_strategy(), &strategy);
    middle.reset();
    EXPECT_EQ(scoped_name("x"), "x");
    EXPECT_EQ(&get_strategy(), &strategy);
    scope.reset();
    expect_outside();
  }
  {
    auto first = std::make_unique<Scope>(strategy.scope());
    auto second = std::make_unique<Scope>(strategy.scope());
    first.reset();
    EXPECT_EQ(&get_strategy(), &strategy);
    second.reset();
    expect_outside();
  }
  {
    auto scope = std::make_unique<Scope>(strategy.scope());
    auto first = std::make_unique<Scope>(strategy.tower_local_var_scope("sum"));
    auto second = std::make_unique<Scope>(strategy.tower_local_var_scope("mean"));
    auto there = std::make_unique<Scope>(strategy.colocate_vars_with("CPU:1"));
    first.reset();
    EXPECT_EQ(variable("v", 1.0).aggregation(), Aggregation::mean);
    second.reset();
    EXPECT_EQ(variable("v", 1.0).synchronization(), Synchronization::on_write);
    scope.reset();
    expect_outside();
    there.reset();
    EXPECT_EQ(variable("v", 1.0).devices().size(), 1);
    expect_outside();
  }
  const auto prefixed = [](std::string text) {
    return std::make_unique<VariableCreatorScope>(
        [text](const NextCreator& next, VariableRequest request) {
          request.name = text + request.name;
          return next(std::move(request));
        });
  };
  auto a = prefixed("a");
  auto b = prefixed("b");
  auto c = prefixed("c");
  a.reset();
  EXPECT_EQ(variable("v", 1.0).name(), "bcv");
  b.reset();
  EXPECT_EQ(variable("v", 1.0).name(), "cv");
  c.reset();
  EXPECT_EQ(variable("v", 1.0).name(), "v");
}

TEST(Scopes, DestroyedInAStepFunctionLeaveTheCallersThreadRight) {
  MirroredStrategy strategy(cpus(2));
  const Logged logged;
  auto names = std::make_unique<NameScope>("a");
  auto scope = std::make_unique<Scope>(strategy.scope());
  std::unique_ptr<NameScope> leaked;
  strategy.run([&](ReplicaContext& replica) {
    if (replica_id() == 0) {
      names.reset();
      scope.reset();
      leaked = std::make_unique<NameScope>("b");
    }
    EXPECT_EQ(get_replica_context(), &replica);
  });
  EXPECT_THAT(logged.lines,
              ElementsAre(HasSubstr("NameScope(\"a\")"), HasSubstr("scope() of MirroredStrategy")));
  expect_outside();
  leaked.reset();
  expect_outside();
}

TEST(Scopes, OfAnotherKindAreIndependent) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  auto v = variable("v", 1.0);
  auto colocated = strategy.colocate_vars_with("CPU:1");
  auto inner = strategy.colocate_vars_with(v);
  EXPECT_THAT(wrong_context([&] { colocated.exit(); }), HasSubstr("not the innermost"));
  EXPECT_EQ(variable("a", 1.0).size(), 2);
  inner.exit();
  EXPECT_THAT(variable("b", 1.0).devices(), ElementsAre(Device("CPU:1")));
  colocated.exit();
  EXPECT_EQ(variable("c", 1.0).size(), 2);
}

TEST(Scopes, AScopeMayBeEnteredAndLeftInsideAMergeFunction) {
  MirroredStrategy strategy(cpus(2));
  strategy.run([&](ReplicaContext& replica) {
    replica.merge_call([](Strategy& s) {
      auto scope = s.scope();
      EXPECT_TRUE(in_cross_replica_context());
    });
    EXPECT_EQ(get_replica_context(), &replica);
  });
  expect_outside();
}

TEST(Scopes, NameScopesPrefix) {
  const NameScope outer("main");
  EXPECT_EQ(scoped_name("a"), "main/a");
  {
    const NameScope inner("foo/");
    EXPECT_EQ(scoped_name("a"), "main/foo/a");
    EXPECT_EQ(variable("v", 1.0).name(), "main/foo/v");
  }
  EXPECT_EQ(scoped_name("a"), "main/a");
  EXPECT_THAT(wrong_value([] { const NameScope none(""); }), HasSubstr("no name"));
  EXPECT_EQ(scoped_name("a"), "main/a");
}

TEST(Scopes, DeviceScopesFillGapsAndChooseTheCopy) {
  MirroredStrategy strategy(cpus(2));
  const auto value = strategy.broadcast(torch::ones({}));
  {
    const DeviceScope outer("/job:worker/task:3");
    EXPECT_EQ(current_device(), "/job:worker/replica:0/task:3/device:CPU:0");
    const DeviceScope inner("CPU:1");
    EXPECT_EQ(current_device(), "/job:worker/replica:0/task:3/device:CPU:1");
    EXPECT_EQ(Destinations("").devices().front().str(), current_device());
  }
  EXPECT_EQ(current_device(), "");
  const DeviceScope second("CPU:1");
  EXPECT_EQ(value.any().data_ptr(), value[1].data_ptr());
  strategy.run([&](ReplicaContext& replica) {
    EXPECT_EQ(current_device(), replica.device().str());
    EXPECT_EQ(value.any().data_ptr(), value[replica_id()].data_ptr());
  });
}

TEST(Scopes, VariableCreatorsStandInBetween) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  std::vector<std::string> asked;
  const VariableCreatorScope outer([&](const NextCreator& next, VariableRequest request) {
    asked.push_back("outer:" + request.name);
    request.options.aggregation = Aggregation::sum;
    return next(std::move(request));
  });
  const VariableCreatorScope inner([&](const NextCreator& next, VariableRequest request) {
    asked.push_back("inner:" + request.name);
    request.name += "_renamed";
    return next(std::move(request));
  });
  const Variable v = variable("v", 1.0);
  EXPECT_THAT(asked, ElementsAre("inner:v", "outer:v_renamed"));
  EXPECT_EQ(v.name(), "v_renamed");
  EXPECT_EQ(v.aggregation(), Aggregation::sum);
}

TEST(Scopes, CreatorsOfTheCallerServeItsReplicas) {
  MirroredStrategy strategy(cpus(2));
  std::atomic<int> calls = 0;
  const VariableCreatorScope counting([&](const NextCreator& next, VariableRequest request) {
    ++calls;
    return next(std::move(request));
  });
  const Variable v = strategy.run([] {
    // One of a replica's own does not leak to the caller.
    const VariableCreatorScope own([](const NextCreator& next, VariableRequest request) {
      request.name += "_own";
      return next(std::move(request));
    });
    return variable("v", 1.0);
  });
  EXPECT_EQ(v.name(), "v_own");
  EXPECT_EQ(calls, 1);  // replica 0 creates, for all
  EXPECT_EQ(variable("w", 1.0).name(), "w");
}

// TensorFlow's order: the replica's own creators, then what all replicas share, then the caller's.
TEST(Scopes, CreatorsOfAReplicaAreAskedOnEveryReplica) {
  MirroredStrategy strategy(cpus(3));
  std::mutex mutex;
  std::vector<std::string> asked;
  const auto note = [&](const std::string& who, const VariableRequest& request) {
    const std::lock_guard lock(mutex);
    asked.push_back(who + " " + request.name);
  };
  const VariableCreatorScope callers([&](const NextCreator& next, VariableRequest request) {
    note("caller", request);
    request.name += "_callers";
    return next(std::move(request));
  });
  const Variable v = strategy.run([&] {
    const int id = replica_id();
    const VariableCreatorScope outer([&](const NextCreator& next, VariableRequest request) {
      note("outer" + std::to_string(id), request);
      request.name += "_outer";
      Variable made = next(std::move(request));
      note("made" + std::to_string(id), {made.name(), {}, {}});
      return made;
    });
    const VariableCreatorScope inner([&](const NextCreator& next, VariableRequest request) {
      note("inner" + std::to_string(id), request);
      request.name += "_inner";
      return next(std::move(request));
    });
    return variable("v", 1.0);
  });
  EXPECT_EQ(v.name(), "v_inner_outer_callers");
  EXPECT_THAT(asked, ::testing::UnorderedElementsAre(
                         "inner0 v", "inner1 v", "inner2 v", "outer0 v_inner", "outer1 v_inner",
                         "outer2 v_inner", "caller v_inner_outer", "made0 v_inner_outer_callers",
                         "made1 v_inner_outer_callers", "made2 v_inner_outer_callers"));
}

// The name that a replica's own creators ask for is the one under which replicas find each other.
TEST(Scopes, ACreatorOfAReplicaMayGiveAnotherVariable) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  const Variable kept = variable("kept", 4.0);
  const Variable given = strategy.run([&] {
    const VariableCreatorScope own(
        [&](const NextCreator&, const VariableRequest&) { return kept; });
    return variable("v", 1.0);
  });
  EXPECT_TRUE(given.same_as(kept));
  EXPECT_THAT(
      wrong_context([&] {
        strategy.run([&] {
          const VariableCreatorScope own([](const NextCreator& next, VariableRequest request) {
            request.name += replica_id() == 0 ? "_a" : "_b";
            return next(std::move(request));
          });
          return variable("v", 1.0);
        });
      }),
      HasSubstr("v_b"));
}

TEST(Scopes, TowerLocalVariables) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  {
    auto local = strategy.tower_local_var_scope("mean");
    auto v = variable("v", 1.0, {.trainable = true});
    EXPECT_EQ(v.synchronization(), Synchronization::on_read);
    EXPECT_EQ(v.aggregation(), Aggregation::mean);
    EXPECT_FALSE(v.trainable());
    auto inner = strategy.tower_local_var_scope(ReduceOp::sum);
    EXPECT_EQ(variable("w", 1.0).aggregation(), Aggregation::sum);
  }
  EXPECT_EQ(variable("u", 1.0).synchronization(), Synchronization::on_write);
}

TEST(Scopes, ColocateVarsWith) {
  MirroredStrategy strategy(on({"GPU:0", "GPU:1"}));
  MirroredStrategy other(cpus(2));
  const Variable foreign = [&] {
    auto scope = other.scope();
    return variable("foreign", 1.0);
  }();
  EXPECT_THAT(wrong_context([&] { auto s = strategy.colocate_vars_with("GPU:0"); }),
              HasSubstr("Need to be inside scope()"));
  auto scope = strategy.scope();
  EXPECT_THAT(wrong_value([&] { auto s = strategy.colocate_vars_with(foreign); }),
              AllOf(HasSubstr("foreign"), HasSubstr("another strategy")));
  EXPECT_THAT(error_of<ConfigError>(Code::invalid_argument,
                                    [&] { auto s = strategy.colocate_vars_with("GPU:7"); }),
              HasSubstr("GPU:7"));
  EXPECT_THAT(wrong_value([&] { auto s = strategy.colocate_vars_with(DeviceList{}); }),
              HasSubstr("empty"));
  {
    auto there = strategy.colocate_vars_with(DeviceList{"CPU:0", "GPU:1"});
    EXPECT_THAT(variable("v", 1.0).devices(), ElementsAre(Device("CPU:0"), Device("GPU:1")));
  }
  {
    auto there = strategy.colocate_vars_with(strategy.broadcast(torch::ones({}), "GPU:1"));
    EXPECT_THAT(variable("v", 1.0).devices(), ElementsAre(Device("GPU:1")));
  }
  {
    auto there = strategy.colocate_vars_with(strategy.non_slot_devices({}));
    EXPECT_EQ(variable("v", 1.0).devices(), strategy.worker_devices());
  }
  // Also for what the replicas create, and inside them.
  auto there = strategy.colocate_vars_with("GPU:1");
  auto made = strategy.run([&] {
    const Variable a = variable("a", 1.0);
    auto elsewhere = strategy.colocate_vars_with("CPU:1");
    return std::pair(a, variable("b", 1.0));
  });
  EXPECT_THAT(made.first.devices(), ElementsAre(Device("GPU:1")));
  EXPECT_THAT(made.second.devices(), ElementsAre(Device("CPU:1")));
}

// --- Strategies as objects. -----------------------------------------------------------------

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

/// What a thread can do while a strategy that is gone is current: nothing, and it is told why.
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
