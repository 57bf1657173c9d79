// Nests whose shape is known at run time: the rules of regroup and select.
#include <sstream>

#include "fixtures.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Nest = DynamicNest;

/// ("a1", ["b1", {c: "d1", e: "f1"}, "g1"], "h1") and the like.
Nest sample(const std::string& n) {
  return Nest::tuple({"a" + n,
                      Nest::list({"b" + n, Nest::dict({{"c", "d" + n}, {"e", "f" + n}}), "g" + n}),
                      "h" + n});
}
template <class Make>
Nest sample_of(const Make& make) {
  return Nest::tuple(
      {make("a"),
       Nest::list({make("b"), Nest::dict({{"c", make("d")}, {"e", make("f")}}), make("g")}),
       make("h")});
}

TEST(DynamicNests, Case20RegroupAndSelect) {
  const Nest first = sample("1");
  const Nest second = sample("2");
  const Nest both = regroup({first, second});
  EXPECT_EQ(both, sample_of([](const std::string& letter) {
              return Nest::per_replica({letter + "1", letter + "2"});
            }));
  EXPECT_EQ(select(0, both), first);
  EXPECT_EQ(select(1, both), second);
  EXPECT_THAT(wrong_value([&] { select_mirrored(0, both); }),
              HasSubstr("Expected value to be mirrored across replicas"));
  const Nest mirrored = regroup({first, second}, Wrap::mirrored);
  EXPECT_EQ(mirrored, sample_of([](const std::string& letter) {
              return Nest::mirrored({letter + "1", letter + "2"});
            }));
  EXPECT_EQ(select_mirrored(0, mirrored), first);
  EXPECT_EQ(select_mirrored(1, mirrored), second);
  EXPECT_THAT(wrong_value([&] { select(2, both); }), HasSubstr("component 2"));
}

TEST(DynamicNests, Case22ComponentsAreTheirVariable) {
  for (const int n : {1, 2}) {
    MirroredStrategy strategy(cpus(n));
    auto scope = strategy.scope();
    const Variable v = variable("v", 1.0);
    std::vector<Nest> each;
    for (const Component& component : v.components()) each.emplace_back(component);
    const Nest whole = regroup(each);
    ASSERT_EQ(whole.kind(), Nest::Kind::variable);
    EXPECT_TRUE(whole.as_variable().same_as(v));
    EXPECT_TRUE(regroup(each, Wrap::mirrored, AlwaysWrap::yes).as_variable().same_as(v));
  }
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  const Variable v = variable("v", 1.0);
  const Variable w = variable("w", 1.0);
  EXPECT_THAT(wrong_value([&] { regroup({v[0], w[1]}); }), HasSubstr("variable v"));
  EXPECT_THAT(wrong_value([&] { regroup({v[0], 1}); }), HasSubstr("variable v"));
}

TEST(DynamicNests, Case23OneReplicaIsTheIdentity) {
  const Nest nest = sample("1");
  const Nest regrouped = regroup({nest});
  EXPECT_EQ(regrouped, nest);
  EXPECT_TRUE(regrouped[0].same_as(nest[0]));
  EXPECT_EQ(regroup({nest}, Wrap::per_replica, AlwaysWrap::yes)[0], Nest::per_replica({"a1"}));
}

TEST(DynamicNests, Case24NamedTuplesSurvive) {
  const auto point = [](int x, int y) {
    return Nest::named_tuple("Point", {{"x", x}, {"y", Nest::list({y})}});
  };
  const Nest both = regroup({point(1, 2), point(3, 4)});
  ASSERT_EQ(both.kind(), Nest::Kind::named_tuple);
  EXPECT_EQ(both.type_name(), "Point");
  EXPECT_EQ(both.at("x"), Nest::per_replica({1, 3}));
  EXPECT_EQ(both.at("y")[0], Nest::per_replica({2, 4}));
  EXPECT_EQ(select(1, both), point(3, 4));
  EXPECT_THAT(wrong_value([&] {
                regroup({point(1, 2), Nest::named_tuple("P", {{"x", 1}})});
              }),
              HasSubstr("replica 1"));
  EXPECT_THAT(wrong_value([&] {
                regroup({point(1, 2), Nest::named_tuple("Q", {{"x", 1}, {"y", 2}})});
              }),
              HasSubstr("Q"));
}

TEST(DynamicNests, Case34LeavesAreMappedThroughComponents) {
  const Nest nest = Nest::tuple({1.0, Nest::per_replica({5.0, 6.0})});
  const auto plus_ten = [](const Nest& leaf) { return Nest(leaf.as_double() + 10); };
  EXPECT_EQ(map_leaves(plus_ten, nest), Nest::tuple({11.0, Nest::per_replica({15.0, 16.0})}));
  MirroredStrategy strategy(cpus(2));
  strategy.run([&] {
    EXPECT_THAT(wrong_value([&] { map_leaves(plus_ten, nest); }), HasSubstr("per-replica value"));
  });
}

TEST(DynamicNests, TheSameObjectIsNotWrapped) {
  const Nest text("same");
  EXPECT_EQ(regroup({text, text}), text);
  EXPECT_EQ(regroup({Nest("same"), Nest("same")}).kind(), Nest::Kind::per_replica);
  const Nest number = 5;
  const Nest copy = number;
  EXPECT_EQ(regroup({number, copy}), Nest(5));
  EXPECT_EQ(regroup({Nest(5), Nest(5)}), Nest::per_replica({5, 5}));
  EXPECT_EQ(regroup({nullptr, nullptr}), Nest());
  EXPECT_EQ(regroup({nullptr, nullptr}, Wrap::per_replica, AlwaysWrap::yes),
            Nest::per_replica({nullptr, nullptr}));
  const Tensor tensor = torch::ones({2});
  EXPECT_EQ(regroup({tensor, tensor}).kind(), Nest::Kind::tensor);
  EXPECT_EQ(regroup({tensor, tensor.clone()}).kind(), Nest::Kind::per_replica);
  // Inside containers, too; and not with AlwaysWrap.
  EXPECT_EQ(regroup({Nest::list({text}), Nest::list({text})})[0], text);
  EXPECT_EQ(
      regroup({Nest::list({text}), Nest::list({text})}, Wrap::per_replica, AlwaysWrap::yes)[0],
      Nest::per_replica({text, text}));
}

TEST(DynamicNests, ShapesMustBeTheSame) {
  const auto differ = [](const Nest& a, const Nest& b, const char* words) {
    EXPECT_THAT(wrong_value([&] {
                  regroup({a, b});
                }),
                AllOf(HasSubstr("replica 1"), HasSubstr(words)));
  };
  differ(Nest::list({1}), Nest::list({1, 2}), "2 instead of 1 items");
  differ(Nest::list({1}), Nest::tuple({1}), "a tuple instead of a list");
  differ(Nest::tuple({1}), 1, "an integer instead of a tuple");
  differ(Nest::dict({{"a", 1}}), Nest::dict({{"b", 1}}), "no key 'a'");
  differ(Nest::dict({{"a", 1}}), Nest::dict({{"a", 1}, {"b", 1}}), "other keys");
  differ(Nest::dict({}), Nest::list({}), "a list instead of a dict");
  EXPECT_THAT(wrong_value([] { regroup({}); }), HasSubstr("no nests"));
}

TEST(DynamicNests, VariablesAreNeverSelected) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  const Variable v = variable("v", 1.0);
  const Variable on_read = variable("r", 1.0, {.synchronization = Synchronization::on_read});
  const Nest nest = Nest::list({v, 3});
  EXPECT_TRUE(select(1, nest)[0].as_variable().same_as(v));
  EXPECT_TRUE(select_mirrored(1, nest)[0].as_variable().same_as(v));
  EXPECT_TRUE(regroup({v, v}, Wrap::per_replica, AlwaysWrap::yes).as_variable().same_as(v));
  EXPECT_THAT(wrong_value([&] { select_mirrored(0, on_read); }), HasSubstr("variable r"));
  EXPECT_TRUE(select(0, on_read).as_variable().same_as(on_read));
}

TEST(DynamicNests, AccessIsChecked) {
  EXPECT_THAT(wrong_value([] { static_cast<void>(Nest("s").as_int()); }),
              HasSubstr("a string, not an integer"));
  EXPECT_THAT(wrong_value([] { static_cast<void>(Nest().items()); }), HasSubstr("null"));
  EXPECT_THAT(wrong_value([] { static_cast<void>(Nest::list({1})[1]); }), HasSubstr("no item 1"));
  EXPECT_THAT(wrong_value([] { static_cast<void>(Nest::dict({}).at("k")); }), HasSubstr("'k'"));
  EXPECT_THAT(wrong_value([] { Nest::per_replica({}); }), HasSubstr("non-empty"));
  EXPECT_TRUE(Nest(true).as_bool());
  EXPECT_EQ(Nest(7U).as_int(), 7);
}

TEST(DynamicNests, Print) {
  std::ostringstream text;
  text << Nest::tuple({nullptr, true, 1, 2.5, "s", Nest::list({}), Nest::dict({{"k", 1}}),
                       Nest::named_tuple("P", {{"x", 1}}), Nest::per_replica({1, 2}),
                       torch::tensor({1.0, 2.0})});
  EXPECT_EQ(text.str(),
            "(null, true, 1, 2.5, \"s\", [], {\"k\": 1}, P(x=1), PerReplica:{1, 2}, [1, 2])");
}

}  // namespace
}  // namespace lockstep
