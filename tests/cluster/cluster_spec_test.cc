#include "lockstep/cluster_spec.h"

#include <sstream>

#include "tests/cluster/variables.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;
using testing::Pair;
using testing::VariantWith;

using List = std::vector<std::string>;
using Map = std::map<int, std::string>;

ClusterSpec example() {
  return {{"ps", {"ps0:2222", "ps1:2222"}},
          {"worker", {"worker0:2222", "worker1:2222", "worker2:2222"}},
          {"sparse", {{0, "sparse0:2222"}, {3, "sparse3:2222"}}}};
}

TEST(ClusterSpec, EmptyIsFalse) {
  EXPECT_FALSE(ClusterSpec());
  EXPECT_FALSE(ClusterSpec({}));
  EXPECT_THAT(ClusterSpec().as_dict(), IsEmpty());
  EXPECT_THAT(ClusterSpec().jobs(), IsEmpty());
  EXPECT_EQ(to_string(ClusterSpec()), "ClusterSpec({})");
  EXPECT_TRUE(example());
  EXPECT_TRUE(ClusterSpec({{"worker", {}}}));  // a job without tasks is a job
}

TEST(ClusterSpec, Accessors) {
  const ClusterSpec cluster = example();
  EXPECT_THAT(cluster.jobs(), ElementsAre("ps", "sparse", "worker"));
  EXPECT_EQ(cluster.num_tasks("ps"), 2);
  EXPECT_EQ(cluster.num_tasks("worker"), 3);
  EXPECT_EQ(cluster.num_tasks("sparse"), 2);
  EXPECT_THAT(cluster.task_indices("worker"), ElementsAre(0, 1, 2));
  EXPECT_THAT(cluster.task_indices("sparse"), ElementsAre(0, 3));
  EXPECT_EQ(cluster.task_address("ps", 1), "ps1:2222");
  EXPECT_EQ(cluster.task_address("sparse", 3), "sparse3:2222");
  EXPECT_THAT(cluster.job_tasks("ps"),
              ElementsAre(Optional(std::string("ps0:2222")), Optional(std::string("ps1:2222"))));
  EXPECT_THAT(cluster.job_tasks("sparse"),
              ElementsAre(Optional(std::string("sparse0:2222")), std::nullopt, std::nullopt,
                          Optional(std::string("sparse3:2222"))));
}

TEST(ClusterSpec, UnknownJobsAndTasks) {
  const ClusterSpec cluster = example();
  const auto unknown = AllOf(HasSubstr("No such job in cluster: 'chief'"), HasSubstr("ps, sparse"));
  EXPECT_THAT(message_of<InvalidUsage>([&] { (void)cluster.num_tasks("chief"); }), unknown);
  EXPECT_THAT(message_of<InvalidUsage>([&] { (void)cluster.task_indices("chief"); }), unknown);
  EXPECT_THAT(message_of<InvalidUsage>([&] { (void)cluster.task_address("chief", 0); }), unknown);
  EXPECT_THAT(message_of<InvalidUsage>([&] { (void)cluster.job_tasks("chief"); }), unknown);
  for (const int index : {-1, 1, 4}) {
    EXPECT_THAT(message_of<InvalidUsage>([&] { (void)cluster.task_address("sparse", index); }),
                AllOf(HasSubstr("No task with index " + std::to_string(index)),
                      HasSubstr("'sparse', which has 2 tasks")));
  }
}

TEST(ClusterSpec, DictOfDenseSparseAndEmptyJobs) {
  const ClusterSpec cluster{{"dense", {{1, "b:1"}, {0, "a:1"}}},
                            {"late", {{1, "c:1"}}},
                            {"empty", {}},
                            {"list", List{"d:1"}}};
  EXPECT_THAT(cluster.as_dict(),
              ElementsAre(Pair("dense", VariantWith<List>(ElementsAre("a:1", "b:1"))),
                          Pair("empty", VariantWith<Map>(IsEmpty())),
                          Pair("late", VariantWith<Map>(ElementsAre(Pair(1, "c:1")))),
                          Pair("list", VariantWith<List>(ElementsAre("d:1")))));
}

TEST(ClusterSpec, Equality) {
  EXPECT_EQ(ClusterSpec(), ClusterSpec({}));
  EXPECT_EQ(ClusterSpec({{"job", {"host:2222"}}}), ClusterSpec({{"job", {{0, "host:2222"}}}}));
  EXPECT_EQ(ClusterSpec(example()), example());
  EXPECT_EQ(ClusterSpec(std::map<std::string, JobTasks>{{"job", List{"host:2222"}}}),
            ClusterSpec({{"job", {"host:2222"}}}));
  const ClusterSpec one{{"job", {"host:2222"}}};
  EXPECT_NE(one, ClusterSpec({{"job", {"host:2223"}}}));
  EXPECT_NE(one, ClusterSpec({{"job", {{1, "host:2222"}}}}));
  EXPECT_NE(one, ClusterSpec({{"other", {"host:2222"}}}));
  EXPECT_NE(one, ClusterSpec({{"job", {"host:2222", "host:2222"}}}));
  EXPECT_NE(one, ClusterSpec());
}

TEST(ClusterSpec, Prints) {
  std::ostringstream out;
  out << ClusterSpec{{"worker", {"b:1", "c:1"}}, {"ps", {{1, "a:1"}}}, {"none", {}}};
  EXPECT_EQ(out.str(), "ClusterSpec({'none': {}, 'ps': {1: 'a:1'}, 'worker': ['b:1', 'c:1']})");
}

TEST(ClusterSpec, WrongEntriesAreNamed) {
  const auto wrong = [](const std::string& address) {
    return message_of<ConfigError>([&] { ClusterSpec{{"worker", {"a:1", address}}}; });
  };
  for (const char* address :
       {"node", "node:0", "node:65536", "no de:1", "::1:1", "/tmp/x", "grpc://node:1", ":1"}) {
    EXPECT_THAT(wrong(address), AllOf(HasSubstr("job 'worker', task 1: "), HasSubstr(address)));
  }
  EXPECT_THAT(wrong("node:0"), HasSubstr("port 0"));
  for (const int index : {-1, 65536, 2147483647}) {
    EXPECT_THAT(message_of<ConfigError>([&] {
                  ClusterSpec{{"worker", Map{{index, "a:1"}}}};
                }),
                AllOf(HasSubstr(std::to_string(index)), HasSubstr("0 to 65535")));
  }
  EXPECT_THAT(message_of<ConfigError>([] { ClusterSpec{{"", {"a:1"}}}; }), HasSubstr("no name"));
  EXPECT_THAT(message_of<InvalidUsage>([] {
                ClusterSpec{{"worker", {"a:1"}}, {"worker", {"b:1"}}};
              }),
              HasSubstr("'worker' comes twice"));
  EXPECT_THAT(message_of<InvalidUsage>([] {
                ClusterSpec{{"ps", {{1, "a:1"}, {1, "b:1"}}}};
              }),
              AllOf(HasSubstr("task 1"), HasSubstr("a:1 and b:1")));
}

TEST(ClusterSpec, AnAddressMayBeUnknown) {
  const ClusterSpec cluster{{"worker", {"a:1", "", "unix:/run/x", "[::1]:4"}}};
  EXPECT_EQ(cluster.num_tasks("worker"), 4);
  EXPECT_EQ(cluster.task_address("worker", 1), "");
}

}  // namespace
}  // namespace lockstep
