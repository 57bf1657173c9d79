// The older spelling, member by member, and its reference document's own examples.
#include "lockstep/distribution_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <barrier>
#include <mutex>
#include <numeric>
#include <thread>

#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

const DeviceList kTwo = {"CPU:0", "CPU:1"};

MirroredOptions on(DeviceList devices) {
  MirroredOptions options;
  options.devices = std::move(devices);
  return options;
}

Tensor number(double value) { return torch::full({}, value); }

std::vector<float> floats(const std::vector<Tensor>& tensors) {
  std::vector<float> values;
  for (const Tensor& tensor : tensors) values.push_back(tensor.item<float>());
  return values;
}
std::vector<float> floats(const std::vector<Component>& components) {
  return floats(std::vector<Tensor>(components.begin(), components.end()));
}

class DistributionStrategyTest : public ::testing::Test {
 protected:
  PerReplica<Tensor> per_tower(double first, double second) const {
    return {{number(first), number(second)}, kTwo};
  }

  MirroredStrategy mirrored{on(kTwo)};
  DistributionStrategy distribution{mirrored};
};

// --- the examples of the document ----------------------------------------------------------------

TEST_F(DistributionStrategyTest, ExampleThreePlusTowerId) {
  // Called once in "cross-tower" context.
  const auto merge_fn = [](DistributionStrategy d, const PerReplica<int>& three_plus_tower_id) {
    EXPECT_FALSE(get_tower_context());
    const std::vector<int> all = d.unwrap(three_plus_tower_id);
    return std::accumulate(all.begin(), all.end(), 0);
  };
  // Called once per tower, in a "tower" context.
  const auto fn = [&](int three) {
    const auto tower_ctx = get_tower_context();
    const int v = three + tower_ctx->tower_id();
    const int s = tower_ctx->merge_call(merge_fn, v);
    return s + v;
  };
  const Scope scope = distribution.scope();
  const auto merged_results = distribution.call_for_each_tower(fn, 3);
  EXPECT_THAT(distribution.unwrap(merged_results), ElementsAre(10, 11));
}

TEST_F(DistributionStrategyTest, ExampleWorkerDeviceIndex) {
  std::mutex mutex;
  std::vector<int> seen;
  const Scope scope = distribution.scope();
  const auto fn = [&](int device_id) {
    EXPECT_EQ(Device(current_device()),
              distribution.worker_devices()[static_cast<std::size_t>(device_id)]);
    const std::lock_guard lock(mutex);
    seen.push_back(device_id);
  };
  distribution.call_for_each_tower(fn, distribution.worker_device_index());
  EXPECT_THAT(seen, UnorderedElementsAre(0, 1));
}

TEST_F(DistributionStrategyTest, ExampleColocateVarsWithAndUpdate) {
  const Scope scope = distribution.scope();
  std::optional<Variable> var1;
  {
    const Scope first_device = distribution.colocate_vars_with("CPU:1");
    var1 = variable("var1", 1.0);
  }
  std::optional<Variable> var2;
  std::optional<Variable> var3;
  {
    const Scope colocated = distribution.colocate_vars_with(*var1);
    // var2 and var3 are created on the same devices as var1.
    var2 = variable("var2", 10.0);
    var3 = variable("var3", 100.0);
  }
  const Variable elsewhere = variable("elsewhere", 0.0);
  EXPECT_THAT(var2->devices(), ElementsAre(Device("CPU:1")));
  EXPECT_EQ(var3->devices(), var1->devices());
  EXPECT_EQ(elsewhere.devices(), kTwo);

  std::atomic<int> calls = 0;
  // Runs on every device that var1 is on; v2 and v3 are there, too.
  const auto fn = [&](Component& v1, const Component& v2, const Component& v3) {
    ++calls;
    EXPECT_EQ(Device(current_device()), v1.device());
    EXPECT_EQ(v2.device(), v1.device());
    EXPECT_EQ(v3.device(), v1.device());
    v1.assign(v2 + v3);
  };
  distribution.update(*var1, fn, *var2, *var3);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(var1->read().item<float>(), 110);
}

TEST_F(DistributionStrategyTest, ExampleStandardPattern) {
  const Scope scope = distribution.scope();
  const Variable w = variable("w", 1.0, {.trainable = true});
  const PerReplica<Tensor> x = per_tower(2, 4);
  const auto gradients = distribution.call_for_each_tower(
      [&](const Tensor& own) {
        const Tensor weight = w.read();
        return torch::autograd::grad({weight * own}, {weight})[0];
      },
      x);
  const std::vector<Colocated<Tensor>> reduced = distribution.batch_reduce("sum", {{gradients, w}});
  ASSERT_THAT(reduced, SizeIs(1));
  distribution.update(
      w, [](Component& copy, const Tensor& gradient) { copy.assign_sub(gradient); }, reduced[0]);
  EXPECT_THAT(floats(distribution.unwrap(w)), ElementsAre(-5, -5));
}

// --- properties ----------------------------------------------------------------------------------

TEST_F(DistributionStrategyTest, IsSingleTowerAndNumTowers) {
  EXPECT_FALSE(distribution.is_single_tower());
  EXPECT_EQ(distribution.num_towers(), 2);
  OneDeviceStrategy one("CPU:0");
  EXPECT_TRUE(DistributionStrategy(one).is_single_tower());
  EXPECT_EQ(DistributionStrategy(one).num_towers(), 1);
  const DistributionStrategy without(get_strategy());
  EXPECT_TRUE(without.is_single_tower());
  EXPECT_EQ(without.num_towers(), 1);
}

TEST_F(DistributionStrategyTest, WorkerDevicesAreACopy) {
  DeviceList devices = distribution.worker_devices();
  EXPECT_EQ(devices, kTwo);
  devices.clear();
  EXPECT_EQ(distribution.worker_devices(), kTwo);
  const DistributionStrategy without(get_strategy());
  EXPECT_THROW(static_cast<void>(without.worker_devices()), InvalidUsage);
}

TEST_F(DistributionStrategyTest, ParameterDevicesMayDiffer) {
  EXPECT_EQ(distribution.parameter_devices(), kTwo);
  CentralStorageOptions options;
  options.compute_devices = kTwo;
  options.parameter_device = "CPU:0";
  CentralStorageStrategy central(options);
  EXPECT_THAT(DistributionStrategy(central).parameter_devices(), ElementsAre(Device("CPU:0")));
  EXPECT_EQ(DistributionStrategy(central).worker_devices(), kTwo);
  const DistributionStrategy without(get_strategy());
  EXPECT_THROW(static_cast<void>(without.parameter_devices()), InvalidUsage);
}

TEST_F(DistributionStrategyTest, WorkerDeviceIndexOfOneDevice) {
  OneDeviceStrategy one("CPU:0");
  EXPECT_EQ(DistributionStrategy(one).worker_device_index().single(), 0);
  const DistributionStrategy without(get_strategy());
  EXPECT_THROW(static_cast<void>(without.worker_device_index()), InvalidUsage);
}

TEST_F(DistributionStrategyTest, ConfigureTakesNoSession) {
  distribution.configure();
  distribution.configure(NoSession{});
  EXPECT_EQ(distribution.num_towers(), 2);
}

// --- contexts ------------------------------------------------------------------------------------

TEST_F(DistributionStrategyTest, ScopeIsCrossTowerContext) {
  EXPECT_TRUE(get_tower_context());
  {
    const Scope scope = distribution.scope();
    EXPECT_EQ(&get_strategy(), &mirrored);
    EXPECT_FALSE(get_tower_context());
    const Scope again = distribution.scope();
  }
  EXPECT_FALSE(has_strategy());
  EXPECT_TRUE(get_tower_context());
}

TEST_F(DistributionStrategyTest, VerbsOutsideOfScopeEnterIt) {
  const auto ids = distribution.call_for_each_tower([] { return get_tower_context()->tower_id(); });
  EXPECT_THAT(distribution.unwrap(ids), ElementsAre(0, 1));
  EXPECT_EQ(distribution.reduce("sum", per_tower(1, 2)).any().item<float>(), 3);
  EXPECT_FALSE(has_strategy());
}

TEST_F(DistributionStrategyTest, VerbsInsideATowerAreRefused) {
  const auto refused = [&](auto verb) {
    try {
      distribution.call_for_each_tower(verb);
      ADD_FAILURE() << "not refused";
    } catch (const InvalidUsage& e) {
      EXPECT_EQ(e.code(), Code::failed_precondition) << e.what();
      EXPECT_THAT(e.what(), HasSubstr("merge_call"));
    }
  };
  refused([&] { static_cast<void>(distribution.unwrap(1)); });
  refused([&] { static_cast<void>(distribution.unwrap(per_tower(1, 2))); });
  refused([&] { distribution.reduce("sum", per_tower(1, 2)); });
  refused([&] { distribution.broadcast(number(1)); });
  refused([&] { static_cast<void>(distribution.worker_device_index()); });
  refused([&] { distribution.call_for_each_tower([] {}); });
}

TEST_F(DistributionStrategyTest, TowerContextMembers) {
  const auto ids = distribution.call_for_each_tower(
      [&](TowerContext tower, int seven) {
        EXPECT_EQ(seven, 7);
        EXPECT_FALSE(tower.is_single_tower());
        EXPECT_EQ(tower.num_towers(), 2);
        EXPECT_EQ(&tower.distribution_strategy().strategy(), &mirrored);
        EXPECT_EQ(tower.device(), kTwo[static_cast<std::size_t>(tower.tower_id())]);
        EXPECT_EQ(get_tower_context()->tower_id(), tower.tower_id());
        return tower.tower_id();
      },
      7);
  EXPECT_THAT(distribution.unwrap(ids), ElementsAre(0, 1));
}

TEST_F(DistributionStrategyTest, MergeCallWithSeveralArguments) {
  const auto results = distribution.call_for_each_tower([](TowerContext tower) {
    const int id = tower.tower_id();
    tower.merge_call([](DistributionStrategy d) { EXPECT_EQ(d.num_towers(), 2); });
    const int two = tower.merge_call(
        [](Strategy&, const PerReplica<int>& a, const PerReplica<int>& b) { return a[0] + b[1]; },
        id, 10 * id);
    const int three = tower.merge_call([](const PerReplica<int>& a, const PerReplica<int>& b,
                                          const PerReplica<int>& c) { return a[1] + b[1] + c[1]; },
                                       id, 10 * id, 100 * id);
    return two + three;
  });
  EXPECT_THAT(distribution.unwrap(results), ElementsAre(121, 121));
}

TEST_F(DistributionStrategyTest, MergeCallNamesTheCaller) {
  try {
    distribution.call_for_each_tower([](TowerContext tower) {
      if (tower.tower_id() == 1) tower.merge_call([](Strategy&) {});
    });
    FAIL();
  } catch (const InvalidUsage& e) {
    EXPECT_THAT(e.what(), HasSubstr("distribution_strategy_test.cc"));
  }
}

TEST(DefaultTower, MergesAlone) {
  const auto tower = get_tower_context();
  ASSERT_TRUE(tower);
  EXPECT_EQ(tower->tower_id(), 0);
  EXPECT_TRUE(tower->is_single_tower());
  EXPECT_EQ(tower->num_towers(), 1);
  const std::string merged = tower->merge_call(
      [](Strategy&, const PerReplica<std::string>& s) { return "foo_" + s.single(); },
      std::string("bar"));
  EXPECT_EQ(merged, "foo_bar");
}

// --- call_for_each_tower and map -----------------------------------------------------------------

TEST_F(DistributionStrategyTest, TowersRunConcurrently) {
  MirroredOptions options = on(kTwo);
  options.replicas.execution = Execution::sequential;
  MirroredStrategy sequential(options);
  // Ends only if both towers are inside at once.
  std::barrier both(2);
  DistributionStrategy(sequential).call_for_each_tower(TowerOptions{.run_concurrently = true}, [&] {
    both.arrive_and_wait();
  });
  distribution.call_for_each_tower(TowerOptions{}, [&] { both.arrive_and_wait(); });
}

TEST_F(DistributionStrategyTest, TowersRunOneAfterTheOther) {
  std::atomic<int> inside = 0;
  std::atomic<bool> met = false;
  std::vector<int> order;
  distribution.call_for_each_tower(
      TowerOptions{.run_concurrently = false},
      [&](TowerContext tower, int seven) {
        EXPECT_EQ(seven, 7);
        ++inside;
        for (int i = 0; i < 1000; ++i) {
          std::this_thread::yield();
          if (inside > 1) met = true;
        }
        order.push_back(tower.tower_id());
        --inside;
      },
      7);
  EXPECT_FALSE(met);
  EXPECT_THAT(order, ElementsAre(0, 1));
}

TEST_F(DistributionStrategyTest, ResultsAreMerged) {
  const Scope scope = distribution.scope();
  const Variable v = variable("v", 1.0);
  const auto [number_of_towers, own, same] = distribution.call_for_each_tower(
      [&](TowerContext tower, const Agreed<Tensor>& agreed) {
        return std::tuple(agreed, tower.tower_id(), v);
      },
      distribution.broadcast(number(2)));
  static_assert(std::is_same_v<decltype(number_of_towers), const Mirrored<Tensor>>);
  EXPECT_EQ(number_of_towers.any().item<float>(), 2);
  EXPECT_THAT(distribution.unwrap(own), ElementsAre(0, 1));
  EXPECT_TRUE(same.same_as(v));
}

TEST_F(DistributionStrategyTest, MapDealsItemsInTurn) {
  const auto outputs = distribution.map(
      std::vector<int>{0, 1, 2, 3, 4},
      [](int item, int factor) {
        EXPECT_EQ(get_tower_context()->tower_id(), item % 2);
        return factor * item;
      },
      10);
  EXPECT_THAT(outputs[0].items, ElementsAre(0, 20, 40));
  EXPECT_THAT(outputs[1].items, ElementsAre(10, 30));
}

TEST_F(DistributionStrategyTest, ReducingAMapCountsItems) {
  const auto tripled = [](int item) { return number(3.0 * item); };
  const auto outputs = distribution.map(std::vector<int>{1, 2, 6}, tripled);
  const Mirrored<Tensor> mean = distribution.reduce("mean", outputs);
  EXPECT_EQ(mean.devices(), kTwo);
  EXPECT_EQ(mean.any().item<float>(), 9);
  EXPECT_EQ(distribution.reduce("sum", outputs, "CPU:0").single().item<float>(), 27);
  // Fewer items than towers.
  EXPECT_EQ(distribution.reduce("mean", distribution.map(std::vector<int>{5}, tripled))
                .any()
                .item<float>(),
            15);
  EXPECT_THROW(distribution.reduce("sum", distribution.map(std::vector<int>{}, tripled)),
               InvalidUsage);
}

TEST_F(DistributionStrategyTest, ReducingAMapHasTheSameBitsOnAnyNumberOfTowers) {
  std::vector<double> items(11);
  std::iota(items.begin(), items.end(), 1);
  const auto total = [&](DeviceList devices) {
    MirroredStrategy strategy(on(std::move(devices)));
    const DistributionStrategy d(strategy);
    const auto parts = d.map(items, [](double item) { return torch::full({}, 1 / (item * item)); });
    return d.reduce("sum", parts).any().clone();
  };
  const Tensor expected = total({"CPU:0"});
  EXPECT_TRUE(torch::equal(total(kTwo), expected));
  EXPECT_TRUE(torch::equal(total({"CPU:0", "CPU:1", "CPU:2"}), expected));
}

// --- reduce, batch_reduce, broadcast -------------------------------------------------------------

TEST_F(DistributionStrategyTest, ReduceMethods) {
  EXPECT_EQ(distribution.reduce("sum", per_tower(1, 4)).any().item<float>(), 5);
  EXPECT_EQ(distribution.reduce("mean", per_tower(1, 4)).any().item<float>(), 2.5);
  EXPECT_EQ(distribution.reduce("mean", PerReplica<int>({1, 4}, kTwo)).any().item<double>(), 2.5);
  EXPECT_THROW(distribution.reduce("max", per_tower(1, 4)), InvalidUsage);
}

TEST_F(DistributionStrategyTest, ReduceDestinations) {
  const Scope scope = distribution.scope();
  const PerReplica<Tensor> value = per_tower(1, 4);
  EXPECT_EQ(distribution.reduce("sum", value).devices(), kTwo);
  EXPECT_EQ(distribution.reduce("sum", value, std::nullopt).devices(), kTwo);
  EXPECT_THAT(distribution.reduce("sum", value, "/device:CPU:1").devices(),
              ElementsAre(Device("CPU:1")));
  const DeviceList list = {"CPU:1", "CPU:0"};
  const Mirrored<Tensor> listed = distribution.reduce("sum", value, list);
  EXPECT_EQ(listed.devices(), list);
  EXPECT_THAT(floats(local_results(listed)), ElementsAre(5, 5));
  EXPECT_THROW(distribution.reduce("sum", value, DeviceList{}), InvalidUsage);

  const Variable v = variable("v", 0.0);
  const Colocated<Tensor> there = distribution.reduce("mean", value, v);
  EXPECT_EQ(there.devices(), v.devices());
  EXPECT_EQ(there.any().item<float>(), 2.5);
}

TEST_F(DistributionStrategyTest, ReduceOfAPlainTensor) {
  EXPECT_THROW(distribution.reduce("sum", number(3)), InvalidUsage);
  OneDeviceStrategy one("CPU:0");
  const Mirrored<Tensor> sum = DistributionStrategy(one).reduce("sum", number(3));
  EXPECT_EQ(sum.single().item<float>(), 3);
}

TEST_F(DistributionStrategyTest, BatchReduceKeepsTheOrder) {
  const std::vector<TowerReducePair> pairs = {
      {per_tower(1, 2), std::nullopt}, {per_tower(3, 4), "CPU:1"}, {per_tower(5, 6), kTwo}};
  const auto results = distribution.batch_reduce("sum", pairs);
  ASSERT_THAT(results, SizeIs(3));
  EXPECT_THAT(floats(local_results(results[0])), ElementsAre(3, 3));
  EXPECT_THAT(floats(local_results(results[1])), ElementsAre(7));
  EXPECT_THAT(floats(local_results(results[2])), ElementsAre(11, 11));
  EXPECT_THAT(distribution.batch_reduce("sum", std::vector<TowerReducePair>{}), SizeIs(0));
}

TEST_F(DistributionStrategyTest, BroadcastDestinations) {
  const Scope scope = distribution.scope();
  EXPECT_EQ(distribution.broadcast(number(3)).devices(), kTwo);
  EXPECT_THAT(floats(local_results(distribution.broadcast(number(3)))), ElementsAre(3, 3));
  EXPECT_THAT(distribution.broadcast(number(3), "CPU:1").devices(), ElementsAre(Device("CPU:1")));
  EXPECT_EQ(distribution.broadcast(number(3), kTwo).devices(), kTwo);
  const Colocated<Tensor> there = distribution.broadcast(number(3), variable("v", 0.0));
  EXPECT_EQ(there.devices(), kTwo);
}

// --- variables -----------------------------------------------------------------------------------

TEST_F(DistributionStrategyTest, UpdateMergesItsResults) {
  const Scope scope = distribution.scope();
  const Variable v = variable("v", 1.0);
  const Colocated<int> results = distribution.update(
      v,
      [](Component& copy, const Tensor& mirrored_value, int plain) {
        copy.assign(mirrored_value * plain);
        return copy.index();
      },
      distribution.broadcast(number(5)), 2);
  EXPECT_THAT(distribution.unwrap(results), ElementsAre(0, 1));
  EXPECT_THAT(floats(distribution.unwrap(v)), ElementsAre(10, 10));
}

TEST_F(DistributionStrategyTest, NonSlotDevicesAndUpdateNonSlot) {
  const Scope scope = distribution.scope();
  const Variable v = variable("v", 1.0);
  const NonSlotDevices where = distribution.non_slot_devices({v});
  EXPECT_EQ(where.devices, kTwo);
  const NonSlotVariable beta = mirrored.non_slot_variable("beta", number(0.5), {v});
  EXPECT_EQ(beta.variable().devices(), where.devices);
  {
    const Scope there = distribution.colocate_vars_with(where);
    EXPECT_EQ(variable("state", 0.0).devices(), where.devices);
  }
  const NonSlot<int> results = distribution.update_non_slot(
      where,
      [](const Component& own, int factor) {
        own.assign(own * factor);
        return factor;
      },
      beta, 4);
  EXPECT_THAT(distribution.unwrap(results), ElementsAre(4, 4));
  EXPECT_THAT(floats(distribution.unwrap(beta)), ElementsAre(2, 2));
}

TEST_F(DistributionStrategyTest, NonSlotDevicesOfTheDefaultStrategy) {
  const DistributionStrategy without(get_strategy());
  const Variable b = variable("b", 1.0);
  const Variable a = variable("a", 1.0);
  EXPECT_EQ(without.non_slot_devices({b, a}).devices, a.devices());
}

TEST_F(DistributionStrategyTest, TowerLocalVarScope) {
  const Scope scope = distribution.scope();
  std::optional<Variable> seen;
  std::optional<Variable> share;
  {
    const Scope tower_local = distribution.tower_local_var_scope("sum");
    seen = variable("seen", torch::rand({}), {.trainable = true});
    const Scope inner = distribution.tower_local_var_scope("mean");
    share = variable("share", 0.0);
  }
  EXPECT_FALSE(seen->trainable());
  EXPECT_EQ(seen->synchronization(), Synchronization::on_read);
  // All copies begin with one and the same value.
  EXPECT_TRUE(torch::equal((*seen)[0], (*seen)[1]));
  distribution.call_for_each_tower([&](TowerContext tower) {
    seen->assign(number(tower.tower_id() + 1));
    share->assign(number(tower.tower_id() + 1));
  });
  EXPECT_THAT(floats(distribution.unwrap(*seen)), ElementsAre(1, 2));
  EXPECT_EQ(distribution.fetch(*seen).item<float>(), 3);
  EXPECT_EQ(distribution.fetch(*share).item<float>(), 1.5);
  // The function sees the reduced value.
  EXPECT_EQ(distribution.fetch(*seen, "/device:CPU:0", [](const Tensor& x) { return x * x; })
                .item<float>(),
            9);
  EXPECT_EQ(variable("after", 0.0).synchronization(), Synchronization::on_write);
}

TEST_F(DistributionStrategyTest, TowerLocalVarScopeInATower) {
  distribution.call_for_each_tower([&](TowerContext tower) {
    const Scope tower_local = tower.tower_local_var_scope("mean");
    EXPECT_EQ(variable("v", 0.0).synchronization(), Synchronization::on_read);
  });
}

TEST_F(DistributionStrategyTest, FetchFromTheNearestComponent) {
  const Scope scope = distribution.scope();
  const Mirrored<Tensor> both({number(7), number(8)}, kTwo);
  EXPECT_EQ(distribution.fetch(both).item<float>(), 7);
  EXPECT_EQ(distribution.fetch(both, "/device:CPU:1").item<float>(), 8);
  EXPECT_EQ(distribution.fetch(both, "/cpu:1").item<float>(), 8);
  {
    const DeviceScope device("CPU:1");  // fills what the destination does not say
    EXPECT_EQ(distribution.fetch(both, "/job:localhost").item<float>(), 8);
  }
  std::string source;
  const auto negated = [&](const Tensor& x) {
    source = current_device();
    return -x;
  };
  EXPECT_EQ(distribution.fetch(both, "CPU:1", negated).item<float>(), -8);
  EXPECT_EQ(Device(source), Device("CPU:1"));
  // Not there: from the first one, and the function is called where the value is.
  const Mirrored<Tensor> one({number(9)}, DeviceList{"CPU:1"});
  EXPECT_EQ(distribution.fetch(one, "CPU:0", negated).item<float>(), -9);
  EXPECT_EQ(Device(source), Device("CPU:1"));
  EXPECT_EQ(distribution.fetch(number(3)).item<float>(), 3);
  EXPECT_EQ(distribution.fetch(variable("v", 4.0)).item<float>(), 4);
}

TEST_F(DistributionStrategyTest, IncrementVarAddsOnce) {
  const Scope scope = distribution.scope();
  const Variable step = variable("step", torch::zeros({}, torch::kLong));
  distribution.call_for_each_tower([&] {
    increment_var(step);
    increment_var(step, 10);
  });
  for (const Component& copy : distribution.unwrap(step)) EXPECT_EQ(copy.item<int64_t>(), 11);
  EXPECT_THROW(increment_var(step), InvalidUsage);  // cross-tower context
}

TEST(DefaultTower, IncrementsAVariable) {
  const Variable step = variable("step", torch::zeros({}, torch::kLong));
  increment_var(step, 3);
  EXPECT_EQ(step.read().item<int64_t>(), 3);
}

// --- unwrap and group ----------------------------------------------------------------------------

TEST_F(DistributionStrategyTest, UnwrapInTheOrderOfDevices) {
  const PerReplica<int> swapped({1, 0}, DeviceList{"CPU:1", "CPU:0"});
  EXPECT_THAT(distribution.unwrap(swapped), ElementsAre(0, 1));
  // The strategy's order is not the order of names.
  MirroredStrategy backwards(on({"CPU:1", "CPU:0"}));
  EXPECT_THAT(DistributionStrategy(backwards).unwrap(PerReplica<int>({0, 1}, kTwo)),
              ElementsAre(1, 0));
  // On other devices: the order of names.
  const Mirrored<int> others({3, 2}, DeviceList{"CPU:3", "CPU:2"});
  EXPECT_THAT(distribution.unwrap(others), ElementsAre(2, 3));
  const Mirrored<int> one({4}, DeviceList{"CPU:1"});
  EXPECT_THAT(distribution.unwrap(one), ElementsAre(4));
}

TEST_F(DistributionStrategyTest, UnwrapOfOneValueAndOfAVariable) {
  EXPECT_THAT(distribution.unwrap(5), ElementsAre(5));
  EXPECT_THAT(distribution.unwrap(std::string("five")), ElementsAre("five"));
  const Scope scope = distribution.scope();
  const auto components = distribution.unwrap(variable("v", 1.0));
  ASSERT_THAT(components, SizeIs(2));
  EXPECT_EQ(components[1].name(), "v/replica_1");
}

TEST_F(DistributionStrategyTest, GroupIsDoneWork) {
  const auto results = distribution.call_for_each_tower([] { return 1; });
  coll::Work work = distribution.group(results, "train");
  EXPECT_TRUE(work.done());
  work.wait();
  distribution.group(distribution.unwrap(results)).wait();
}

}  // namespace
}  // namespace lockstep
