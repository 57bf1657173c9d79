// Sync-on-read variables: each replica writes its own copy, reading across replicas aggregates.
#include <sstream>

#include "fixtures.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Aggregation kAll[] = {Aggregation::none, Aggregation::sum, Aggregation::mean,
                                Aggregation::only_first_replica};

struct SyncOnRead : ::testing::Test {
  MirroredStrategy strategy{cpus(2)};

  static Variable make_in(Strategy& s, const Tensor& initial, Aggregation aggregation) {
    auto scope = s.scope();
    return variable("v", initial,
                    {.synchronization = Synchronization::on_read, .aggregation = aggregation});
  }
  Variable make(double initial, Aggregation aggregation) {
    return make_in(strategy, torch::full({}, initial), aggregation);
  }
};

TEST_F(SyncOnRead, Case54EveryReplicaAssignsItsId) {
  for (const Execution execution : {Execution::concurrent, Execution::sequential}) {
    for (const int n : {1, 2, 3}) {
      MirroredStrategy own(cpus(n, execution));
      const auto read = [&](Aggregation aggregation) {
        const Variable v = make_in(own, torch::full({}, 5.0), aggregation);
        own.run([&] { EXPECT_EQ(number(v.assign(replica_id())), replica_id()); });
        return number(v.read());
      };
      EXPECT_EQ(read(Aggregation::sum), n * (n - 1) / 2.0);
      EXPECT_EQ(read(Aggregation::mean), (n - 1) / 2.0);
      EXPECT_EQ(read(Aggregation::only_first_replica), 0);
    }
  }
}

TEST_F(SyncOnRead, Case55ReadingInEachContext) {
  const Variable v = make(0, Aggregation::mean);
  strategy.run([&] { v.assign(replica_id()); });
  EXPECT_EQ(number(v + 1), 1.5);
  EXPECT_THAT(numbers(strategy.run([&] { return v + 1; })), ElementsAre(1, 2));
}

TEST_F(SyncOnRead, Case56NoneHasNoReadingAcrossReplicas) {
  const Variable v = make(1, Aggregation::none);
  const auto words = AllOf(HasSubstr("VariableAggregation NONE"), HasSubstr("variable v"));
  EXPECT_THAT(wrong_value([&] { static_cast<void>(v.read()); }), words);
  EXPECT_THAT(wrong_value([&] { static_cast<void>(v.export_value()); }), words);
  EXPECT_THAT(wrong_value([&] { static_cast<void>(v + 1); }), words);
  EXPECT_THAT(numbers(strategy.run([&] { return v.read(); })), ElementsAre(1, 1));
  // Writing is possible; there is no reading to give back.
  EXPECT_FALSE(v.assign(3).defined());
  EXPECT_FALSE(v.assign_add(1).defined());
  EXPECT_THAT(numbers(v), ElementsAre(4, 4));
  v.restore_value(torch::full({}, 9.0));
  EXPECT_THAT(numbers(v), ElementsAre(9, 9));
}

TEST_F(SyncOnRead, Case58AssignAcrossReplicas) {
  auto scope = strategy.scope();
  const Variable sum = make(1, Aggregation::sum);
  EXPECT_EQ(number(sum.read()), 2);
  EXPECT_EQ(number(sum.assign(6)), 6);
  EXPECT_THAT(numbers(sum), ElementsAre(3, 3));
  EXPECT_EQ(number(sum.assign(torch::full({}, 8.0))), 8);
  EXPECT_EQ(number(sum.assign(strategy.broadcast(torch::full({}, 5.0)))), 5);
  EXPECT_THAT(numbers(sum), ElementsAre(2.5, 2.5));
  const Variable mean = make(1, Aggregation::mean);
  EXPECT_EQ(number(mean.read()), 1);
  EXPECT_EQ(number(mean.assign(6)), 6);
  EXPECT_THAT(numbers(mean), ElementsAre(6, 6));
}

TEST_F(SyncOnRead, AddingAcrossReplicas) {
  const Variable sum = make(1, Aggregation::sum);
  EXPECT_THAT(wrong_value([&] { sum.assign_add(1); }),
              AllOf(HasSubstr("assign_add"), HasSubstr("SUM"), HasSubstr("assign it")));
  EXPECT_THAT(wrong_value([&] { sum.assign_sub(torch::ones({})); }), HasSubstr("assign_sub"));
  EXPECT_THAT(numbers(sum), ElementsAre(1, 1));
  const Variable mean = make(1, Aggregation::mean);
  strategy.run([&] { mean.assign(replica_id()); });
  EXPECT_EQ(number(mean.assign_add(2)), 2.5);
  EXPECT_THAT(numbers(mean), ElementsAre(2, 3));
  const Variable first = make(1, Aggregation::only_first_replica);
  EXPECT_EQ(number(first.assign_sub(4)), -3);
}

TEST_F(SyncOnRead, IntegersAreDividedWithoutLoss) {
  const std::int64_t large = (std::int64_t{1} << 60) + 2;
  const Variable v = make_in(strategy, torch::zeros({}, torch::kLong), Aggregation::sum);
  v.assign(torch::full({}, large, torch::kLong));
  EXPECT_EQ(v.read().item<std::int64_t>(), large);
  v.assign(at::Scalar(large));
  EXPECT_EQ(v.read().item<std::int64_t>(), large);
  v.assign(7);  // truncates, as a cast does
  EXPECT_THAT(numbers(v), ElementsAre(3, 3));
  v.assign(torch::full({}, -7, torch::kLong));
  EXPECT_THAT(numbers(v), ElementsAre(-3, -3));
  // An integer tensor into floating copies is not rounded to float32 on the way.
  const Variable d = make_in(strategy, torch::zeros({}, torch::kDouble), Aggregation::sum);
  d.assign(torch::full({}, 33554434 + 1, torch::kLong));
  EXPECT_EQ(number(d.read()), 33554435);
}

TEST_F(SyncOnRead, NothingMeetsInsideAStep) {
  const Variable v = make(0, Aggregation::sum);
  // Only one replica writes: with a meeting this would be an error.
  strategy.run([&] {
    if (replica_id() == 1) {
      v.assign_add(5);
      v.assign_sub(torch::full({}, 1.0));
      v.assign_local(v.read() + 1);
    }
  });
  EXPECT_THAT(numbers(v), ElementsAre(0, 5));
}

TEST_F(SyncOnRead, Case59Update) {
  const Variable v = make(0, Aggregation::sum);
  strategy.update(
      v, [](Component& copy, double x) { copy.assign(x); }, 5.0);
  EXPECT_THAT(numbers(v), ElementsAre(5, 5));
  EXPECT_EQ(number(v.read()), 10);
  // The same through the variable: inside update it is one copy, and nothing is divided.
  strategy.update(v, [&](Component&) { v.assign(6); });
  EXPECT_EQ(number(v.read()), 12);
  strategy.update(v, [&](Component&) { v.assign_add(1); });
  EXPECT_EQ(number(v.read()), 14);
}

TEST_F(SyncOnRead, Case62SaveAndRestore) {
  const Variable sum = make(0, Aggregation::sum);
  strategy.run([&] { sum.assign(4 - replica_id()); });
  const Tensor saved = sum.export_value();
  EXPECT_EQ(number(saved), 7);
  sum.assign(0);
  sum.restore_value(saved);
  EXPECT_THAT(numbers(sum), ElementsAre(3.5, 3.5));
  EXPECT_EQ(number(sum.read()), 7);

  const Variable plain = variable("plain", 2.0);
  sum.restore_value(plain.export_value());
  EXPECT_THAT(numbers(sum), ElementsAre(1, 1));
  const Variable mean = make(0, Aggregation::mean);
  mean.restore_value(plain.export_value());
  EXPECT_THAT(numbers(mean), ElementsAre(2, 2));
  strategy.run([&] { mean.assign(replica_id()); });
  EXPECT_EQ(number(mean.export_value()), 0.5);
}

TEST_F(SyncOnRead, Case63ScatterIsUnsupported) {
  using Method = Tensor (Variable::*)(const IndexedSlices&, Here) const;
  const IndexedSlices slices{torch::tensor({0}), torch::tensor({1.0})};
  for (const Aggregation aggregation : kAll) {
    const Variable v = make_in(strategy, torch::zeros({3}), aggregation);
    for (const Method method :
         {&Variable::scatter_add, &Variable::scatter_sub, &Variable::scatter_mul,
          &Variable::scatter_div, &Variable::scatter_min, &Variable::scatter_max,
          &Variable::scatter_update}) {
      const auto words = AllOf(HasSubstr("scatter_"), HasSubstr("sync-on-read variable v"));
      EXPECT_THAT(
          error_of<Unsupported>(Code::unimplemented, [&] { (v.*method)(slices, Here::now()); }),
          words);
      EXPECT_THAT(
          error_of<Unsupported>(Code::unimplemented,
                                [&] { strategy.run([&] { (v.*method)(slices, Here::now()); }); }),
          words);
    }
  }
}

TEST_F(SyncOnRead, Case64IntegersAreConverted) {
  for (const Aggregation aggregation : {Aggregation::mean, Aggregation::only_first_replica}) {
    const Variable v = make(0, aggregation);
    v.assign(1);
    EXPECT_EQ(v.read().scalar_type(), torch::kFloat);
    EXPECT_EQ(number(v.read()), 1);
    strategy.run([&] { v.assign(torch::full({}, 2, torch::kLong)); });
    EXPECT_EQ(number(v.read()), 2);
    EXPECT_EQ(v.dtype(), torch::kFloat);
  }
}

TEST_F(SyncOnRead, FetchTakesTheAggregate) {
  const Variable v = make(3, Aggregation::sum);
  EXPECT_EQ(number(strategy.fetch(v)), 6);
  EXPECT_EQ(number(strategy.fetch(v, "CPU:1", [](const Tensor& x) { return x * 10; })), 60);
}

TEST_F(SyncOnRead, MayBeTrainable) {
  auto scope = strategy.scope();
  const Variable v = variable("v", 2.0,
                              {.synchronization = Synchronization::on_read,
                               .aggregation = Aggregation::mean,
                               .trainable = true});
  strategy.run([&] { (v * (replica_id() + 1)).backward(); });
  EXPECT_EQ(number(v[0].grad()), 1);
  EXPECT_EQ(number(v[1].grad()), 2);
  EXPECT_FALSE(v.read().requires_grad());
}

TEST_F(SyncOnRead, Prints) {
  std::ostringstream text;
  text << make(1, Aggregation::sum);
  EXPECT_EQ(text.str(), "SyncOnReadVariable:{\n  0: v = 1,\n  1: v/replica_1 = 1\n}");
}

}  // namespace
}  // namespace lockstep
