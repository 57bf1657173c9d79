// Scope objects: in which order they end, and what names, devices and variables they change.
#include <memory>
#include <thread>

#include "fixtures.h"
#include "tests/cluster/variables.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

/// Enters the scope that `enter` returns and expects that exit() of `outer` is refused inside it.
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

// The thread that entered it is right again, whatever the scopes around and inside it.
TEST(Scopes, DestroyedOnAnotherThreadEndOnTheirOwn) {
  MirroredStrategy strategy(cpus(2));
  const auto on_another_thread = [](const auto& fn) { std::thread(fn).join(); };
  const Logged logged;
  auto alone = std::make_unique<Scope>(strategy.scope());
  on_another_thread([&] {
    alone.reset();
    expect_outside();
  });
  EXPECT_THAT(logged.lines(), ElementsAre(HasSubstr("a scope was entered on another thread")));
  expect_outside();
  auto outer = std::make_unique<NameScope>("a");
  auto middle = std::make_unique<NameScope>("b");
  auto inner = std::make_unique<DeviceScope>("CPU:1");
  on_another_thread([&] { middle.reset(); });
  EXPECT_EQ(current_device(), Device("CPU:1").str());
  inner.reset();
  EXPECT_EQ(scoped_name("x"), "a/x");
  outer.reset();
  expect_outside();
  // While the thread is inside a function of a run, it is the context around the run that has it.
  auto around = std::make_unique<NameScope>("around");
  strategy.run([&](ReplicaContext& replica) {
    if (replica.replica_id_in_sync_group() != 0) return;
    on_another_thread([&] { around.reset(); });
  });
  EXPECT_EQ(scoped_name("x"), "x");
  expect_outside();
  EXPECT_EQ(logged.lines().size(), 3U);
  // A thread that is over has nothing to end.
  std::unique_ptr<Scope> left;
  on_another_thread([&] { left = std::make_unique<Scope>(strategy.scope()); });
  left.reset();
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
    EXPECT_THAT(logged.lines(), ElementsAre(AllOf(HasSubstr("DeviceScope(\"CPU:0\") is not"),
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
  EXPECT_THAT(logged.lines(),
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

}  // namespace
}  // namespace lockstep
