#include "lockstep/cluster_resolver.h"

#include <cstdlib>

#include "tests/cluster/variables.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

const ClusterSpec kCluster{{"ps", {"ps0:2222", "ps1:2222"}},
                           {"worker", {"worker0:2222", "worker1:2222", "worker2:2222"}}};

TEST(SimpleClusterResolver, SaysWhatItWasTold) {
  SimpleClusterResolver resolver(kCluster, {.master = "ps0:2222",
                                            .task_type = "worker",
                                            .task_id = 0,
                                            .environment = "google",
                                            .num_accelerators = {{"GPU", 2}},
                                            .rpc_layer = "grpc"});
  EXPECT_EQ(resolver.cluster_spec(), kCluster);
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 0);
  EXPECT_EQ(resolver.rpc_layer(), "grpc");
  EXPECT_EQ(resolver.environment(), "google");
  EXPECT_THAT(resolver.num_accelerators(), ElementsAre(Pair("GPU", 2)));
  EXPECT_EQ(resolver.master(), "grpc://ps0:2222");
  EXPECT_EQ(resolver.master({.task_type = "worker", .task_id = 1}), "grpc://worker1:2222");
  EXPECT_EQ(resolver.master({.task_type = "worker", .task_id = 1, .rpc_layer = "other"}),
            "other://worker1:2222");
  resolver.set_task_type("ps");
  resolver.set_task_id(1);
  resolver.set_rpc_layer("");
  EXPECT_EQ(resolver.task_type(), "ps");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.master(), "ps0:2222");
}

TEST(SimpleClusterResolver, KnowsNothingElse) {
  const SimpleClusterResolver resolver(kCluster);
  EXPECT_EQ(resolver.task_type(), std::nullopt);
  EXPECT_EQ(resolver.task_id(), std::nullopt);
  EXPECT_EQ(resolver.rpc_layer(), std::nullopt);
  EXPECT_EQ(resolver.master(), "");
  EXPECT_EQ(resolver.environment(), "");
  EXPECT_EQ(resolver.meeting(), "");
  EXPECT_THAT(resolver.num_accelerators(), IsEmpty());
}

SimpleClusterResolver simple(ClusterSpec cluster) {
  return SimpleClusterResolver(std::move(cluster));
}

TEST(UnionResolver, OneResolverIsItself) {
  const UnionResolver resolver({simple(kCluster)});
  EXPECT_EQ(resolver.cluster_spec(), kCluster);
}

TEST(UnionResolver, ListsOfAJobAreJoined) {
  const UnionResolver resolver({simple(kCluster), simple({{"worker", {"worker3:2222"}}}),
                                simple({{"evaluator", {"eval:2222"}}})});
  EXPECT_EQ(
      resolver.cluster_spec(),
      ClusterSpec({{"ps", {"ps0:2222", "ps1:2222"}},
                   {"worker", {"worker0:2222", "worker1:2222", "worker2:2222", "worker3:2222"}},
                   {"evaluator", {"eval:2222"}}}));
}

TEST(UnionResolver, JobsWithGapsAreMergedByIndex) {
  const ClusterSpec late{{"worker", {{7, "worker7:2222"}, {9, "worker9:2222"}}}};
  const UnionResolver resolver({simple(kCluster), simple(late)});
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"ps", {"ps0:2222", "ps1:2222"}},
                                                  {"worker",
                                                   {{0, "worker0:2222"},
                                                    {1, "worker1:2222"},
                                                    {2, "worker2:2222"},
                                                    {7, "worker7:2222"},
                                                    {9, "worker9:2222"}}}}));
  // Whichever comes first.
  EXPECT_EQ(UnionResolver({simple(late), simple(kCluster)}).cluster_spec(),
            resolver.cluster_spec());
  EXPECT_THAT(
      message_of<InvalidUsage>([&] {
        (void)UnionResolver({simple(kCluster), simple({{"worker", {{1, "again:1"}}}})})
            .cluster_spec();
      }),
      AllOf(HasSubstr("task 1 of job 'worker'"), HasSubstr("worker1:2222"), HasSubstr("again:1")));
}

TEST(UnionResolver, TheRestIsTheFirstOnes) {
  const SimpleClusterResolver first(kCluster, {.master = "ps0:2222",
                                               .task_type = "ps",
                                               .task_id = 1,
                                               .environment = "google",
                                               .num_accelerators = {{"GPU", 3}},
                                               .rpc_layer = "grpc"});
  const SimpleClusterResolver second({{"evaluator", {"eval:1"}}},
                                     {.master = "eval:1", .task_type = "evaluator", .task_id = 0});
  const UnionResolver both({first, second});
  EXPECT_EQ(both.task_type(), "ps");
  EXPECT_EQ(both.task_id(), 1);
  EXPECT_EQ(both.rpc_layer(), "grpc");
  EXPECT_EQ(both.environment(), "google");
  EXPECT_THAT(both.num_accelerators(), ElementsAre(Pair("GPU", 3)));
  EXPECT_EQ(both.master(), "grpc://ps0:2222");
  EXPECT_EQ(both.master({.task_type = "evaluator", .task_id = 0}), "grpc://eval:1");

  const UnionResolver given({first, second},
                            {.task_type = "worker", .task_id = 2, .rpc_layer = "x"});
  EXPECT_EQ(given.task_type(), "worker");
  EXPECT_EQ(given.task_id(), 2);
  EXPECT_EQ(given.rpc_layer(), "x");
  // As in TensorFlow, 0 is as good as nothing.
  EXPECT_EQ(UnionResolver({first, second}, {.task_id = 0}).task_id(), 1);
}

TEST(UnionResolver, NeedsResolvers) {
  EXPECT_THAT(message_of<InvalidUsage>([] { UnionResolver(std::vector<AnyClusterResolver>{}); }),
              HasSubstr("at least one"));
  EXPECT_THAT(message_of<InvalidUsage>(
                  [] { AnyClusterResolver(std::shared_ptr<const ClusterResolver>()); }),
              HasSubstr("null"));
}

TEST(AnyClusterResolver, KeepsAResolverOfAnyClass) {
  struct Own final : ClusterResolver {
    ClusterSpec cluster_spec() const override { return {{"worker", {"a:1"}}}; }
    std::string source() const override { return "own"; }
  };
  const AnyClusterResolver by_value = Own();
  const AnyClusterResolver shared(std::make_shared<Own>());
  const AnyClusterResolver& copy = by_value;
  EXPECT_EQ(copy->source(), "own");
  EXPECT_EQ((*shared).cluster_spec(), by_value->cluster_spec());
}

TEST(ProcessEnvironment, IsReadAnewEachTime) {
  const EnvironmentView variables = process_environment();
  unsetenv("LOCKSTEP_TEST_VARIABLE");
  EXPECT_EQ(variables("LOCKSTEP_TEST_VARIABLE"), std::nullopt);
  setenv("LOCKSTEP_TEST_VARIABLE", "", 1);
  EXPECT_EQ(variables("LOCKSTEP_TEST_VARIABLE"), "");
  setenv("LOCKSTEP_TEST_VARIABLE", "a", 1);
  EXPECT_EQ(variables("LOCKSTEP_TEST_VARIABLE"), "a");
  unsetenv("LOCKSTEP_TEST_VARIABLE");
}

}  // namespace
}  // namespace lockstep
