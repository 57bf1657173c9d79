// Strategies in processes that no launcher started: each is told the cluster and its own task by
// TF_CONFIG, and by nothing else.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/processes/cluster.h"

namespace lockstep::processes {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kPatience = std::chrono::seconds(60);

enum class Started { workers, all, only_ps };

/// A cluster of two workers and a ps at ports of this host, and the processes of its tasks: workers
/// 0 and 1, then the ps. Each is given the name of a file. Worker 0 may be called a chief.
struct TfConfigCluster {
  TfConfigCluster(const char* program, Started started, const std::string& first = "worker") {
    for (const int port : free_ports(3)) addresses.push_back(fmt::format("localhost:{}", port));
    ClusterOptions options;
    options.ranks = 3;
    options.program = program;
    options.scenario = file;
    options.environment = {"LOCKSTEP_RANK=", "LOCKSTEP_ADDRESSES="};  // not set
    if (started == Started::workers) options.absent = {2};
    if (started == Started::only_ps) options.absent = {0, 1};
    for (int task = 0; task < 3; ++task) {
      nlohmann::json config;
      const std::string types[] = {first, "worker", "ps"};
      for (std::size_t i = 0; i < 3; ++i) {
        nlohmann::json& job = config["cluster"][types[i]];
        if (static_cast<int>(i) == task) {
          config["task"] = {{"type", types[i]}, {"index", job.size()}};
        }
        job.push_back(addresses[i]);
      }
      options.environment_of[task] = {"TF_CONFIG=" + config.dump()};
    }
    outcomes = ProcessCluster(options).finish(kPatience);
  }

  TemporaryDirectory directory;
  std::string file = directory.path() + "/model.pt";
  std::vector<std::string> addresses;
  std::vector<Outcome> outcomes;
};

TEST(TfConfigProcesses, TwoWorkersTrainOneNet) {
  const TfConfigCluster cluster(LOCKSTEP_MULTI_WORKER, Started::workers);
  for (const int worker : {0, 1}) {
    const Outcome& task = cluster.outcomes[static_cast<std::size_t>(worker)];
    EXPECT_TRUE(task.ok()) << task.how() << task.text;
  }
  EXPECT_THAT(cluster.outcomes[0].text,
              HasSubstr("2 workers, shared memory: w = 2.00 -3.00, b = 0.50"));
  EXPECT_THAT(cluster.outcomes[1].text, Not(HasSubstr("2 workers")));  // only the chief prints
  EXPECT_TRUE(std::filesystem::exists(cluster.file));
}

// The program of the r2.3 document: the strategy is made of TF_CONFIG alone, and what a task does
// depends on strategy.cluster_resolver().task_type().
TEST(TfConfigProcesses, EachTaskLearnsItsTypeFromTheResolver) {
  const TfConfigCluster cluster(LOCKSTEP_CLUSTER_RESOLVER, Started::all);
  for (const Outcome& task : cluster.outcomes) EXPECT_TRUE(task.ok()) << task.how() << task.text;
  for (const std::size_t worker : {0, 1}) {
    EXPECT_THAT(cluster.outcomes[worker].text,
                HasSubstr(fmt::format("worker {} of 2 at {}, over shared memory: 2 have come",
                                      worker, cluster.addresses[worker])));
  }
  EXPECT_THAT(cluster.outcomes[2].text, HasSubstr("a parameter server"));
}

TEST(TfConfigProcesses, AChiefIsAWorkerOfItsOwnType) {
  const TfConfigCluster cluster(LOCKSTEP_CLUSTER_RESOLVER, Started::workers, "chief");
  EXPECT_THAT(cluster.outcomes[0].text, HasSubstr("chief 0 of 2 at " + cluster.addresses[0]));
  EXPECT_THAT(cluster.outcomes[1].text, HasSubstr("worker 0 of 2 at " + cluster.addresses[1]));
}

// A ps that makes a strategy all the same is told what to do, at once and by itself.
TEST(TfConfigProcesses, APsThatMakesAStrategyIsToldToBranchFirst) {
  const TfConfigCluster cluster(LOCKSTEP_MULTI_WORKER, Started::only_ps);
  EXPECT_TRUE(cluster.outcomes[2].exited_with(1)) << cluster.outcomes[2].how();
  EXPECT_THAT(cluster.outcomes[2].text, HasSubstr("task_type()"));
}

}  // namespace
}  // namespace lockstep::processes
