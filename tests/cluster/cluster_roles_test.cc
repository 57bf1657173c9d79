#include "lockstep/cluster_roles.h"

#include "tests/cluster/variables.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const ClusterSpec kChief{
    {"chief", {"c:1"}}, {"worker", {"w0:1", "w1:1"}}, {"ps", {"p0:1", "p1:1"}}};
const ClusterSpec kNoChief{{"worker", {"w0:1", "w1:1"}}, {"ps", {"p0:1", "p1:1"}}};

TEST(ClusterRoles, Case100WithAChief) {
  EXPECT_EQ(worker_count(kChief, "chief"), 3);
  EXPECT_EQ(worker_count(kChief, "worker"), 3);
  EXPECT_EQ(id_in_cluster(kChief, "chief", 0), 0);
  EXPECT_EQ(id_in_cluster(kChief, "worker", 0), 1);
  EXPECT_EQ(id_in_cluster(kChief, "worker", 1), 2);
  EXPECT_TRUE(is_chief(kChief, "chief", 0));
  EXPECT_FALSE(is_chief(kChief, "worker", 0));
  EXPECT_FALSE(is_chief(kChief, "ps", 0));
  EXPECT_EQ(collective_leader(kChief, "worker", 1), "/job:chief/replica:0/task:0");
}

TEST(ClusterRoles, Case100WithoutAChief) {
  EXPECT_EQ(worker_count(kNoChief, "worker"), 2);
  EXPECT_EQ(id_in_cluster(kNoChief, "worker", 1), 1);
  EXPECT_TRUE(is_chief(kNoChief, "worker", 0));
  EXPECT_FALSE(is_chief(kNoChief, "worker", 1));
  EXPECT_FALSE(is_chief(kNoChief, "ps", 0));
  EXPECT_EQ(collective_leader(kNoChief, "worker", 1), "/job:worker/replica:0/task:0");
}

TEST(ClusterRoles, Evaluators) {
  const ClusterSpec with{{"chief", {"c:1"}}, {"worker", {"w:1"}}, {"evaluator", {"e:1"}}};
  EXPECT_EQ(worker_count(with, "evaluator"), 1);
  EXPECT_EQ(worker_count(with, "worker"), 2);
  EXPECT_EQ(id_in_cluster(with, "evaluator", 0), 0);
  EXPECT_TRUE(is_chief(with, "evaluator", 0));
  EXPECT_EQ(collective_leader(with, "evaluator", 0), "");
  // One that the cluster does not list.
  EXPECT_TRUE(is_chief(kChief, "evaluator", 0));
  EXPECT_EQ(id_in_cluster(kChief, "evaluator", 0), 0);
  EXPECT_THAT(message_of<ConfigError>([] { worker_count(kChief, "evaluator"); }),
              AllOf(HasSubstr("'evaluator'"), HasSubstr("chief, ps, worker")));
}

TEST(ClusterRoles, AnEmptyClusterHasNoLeader) {
  EXPECT_EQ(collective_leader({}, "worker", 0), "");
  EXPECT_THAT(message_of<ConfigError>([] { is_chief({}, "worker", 0); }), HasSubstr("none"));
}

TEST(ClusterRoles, ParameterServersAreNotCounted) {
  EXPECT_THAT(message_of<InvalidUsage>([] { worker_count(kChief, "ps"); }),
              HasSubstr("Unexpected task_type 'ps'"));
  EXPECT_THAT(message_of<InvalidUsage>([] { id_in_cluster(kChief, "ps", 0); }),
              HasSubstr("Unexpected task_type 'ps'"));
}

TEST(ClusterRoles, TasksAreChecked) {
  const auto wrong = [](const ClusterSpec& cluster, const std::string& type, int id) {
    return message_of<ConfigError>([&] { is_chief(cluster, type, id); });
  };
  EXPECT_THAT(wrong(kChief, "trainer", 0),
              AllOf(HasSubstr("'trainer'"), HasSubstr("chief, ps, worker")));
  EXPECT_THAT(wrong(kNoChief, "chief", 0), AllOf(HasSubstr("'chief'"), HasSubstr("ps, worker")));
  EXPECT_THAT(wrong(kChief, "worker", 2), AllOf(HasSubstr("task_id 2"), HasSubstr("2 tasks")));
  EXPECT_THAT(wrong(kChief, "worker", -1), HasSubstr("-1"));
  EXPECT_THAT(wrong({{"chief", {"a:1", "b:1"}}, {"worker", {"w:1"}}}, "worker", 0),
              HasSubstr("2 tasks of job 'chief'"));
  EXPECT_THAT(wrong({{"worker", {"w:1"}}, {"evaluator", {"a:1", "b:1"}}}, "worker", 0),
              HasSubstr("2 tasks of job 'evaluator'"));
  EXPECT_THAT(wrong({{"worker", {{1, "w:1"}}}}, "worker", 0), HasSubstr("task_id 0"));
  EXPECT_EQ(worker_count({{"worker", {{1, "w:1"}}}}, "worker"), 1);
}

}  // namespace
}  // namespace lockstep
