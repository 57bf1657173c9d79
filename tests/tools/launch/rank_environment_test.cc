#include "launch/rank_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::tool {
namespace {

using testing::Contains;
using testing::IsSupersetOf;
using testing::Not;
using testing::StartsWith;

ClusterSettings settings() {
  return {.placement = {.hosts = {{"a", 1}, {"b", 2}}, .here = 1},
          .addresses = {"a:10", "b:10", "b:11"},
          .tf_workers = {"a:10", "b:10", "b:11"},
          .restarts = 3,
          .launcher_pid = 77};
}

TEST(RankEnvironment, SaysWhoAndWhere) {
  const auto all = rank_environment({}, settings(), 1);
  EXPECT_THAT(all, IsSupersetOf({"LOCKSTEP_RANK=2", "LOCKSTEP_SIZE=3", "LOCKSTEP_LOCAL_RANK=1",
                                 "LOCKSTEP_LOCAL_SIZE=2", "LOCKSTEP_ADDRESSES=a:10,b:10,b:11",
                                 "LOCKSTEP_GENERATION_HINT=3", "LOCKSTEP_LAUNCHER_PID=77"}));
  EXPECT_THAT(all, Contains("TF_CONFIG={\"cluster\":{\"worker\":[\"a:10\",\"b:10\",\"b:11\"]},"
                            "\"task\":{\"type\":\"worker\",\"index\":2}}"));
  for (const char* name : {"LOCKSTEP_KEY_FILE", "LOCKSTEP_BIND", "LOCKSTEP_INSECURE",
                           "LOCKSTEP_PLAINTEXT_DATA", "LOCKSTEP_HISTORY_DIR"}) {
    EXPECT_THAT(all, Not(Contains(StartsWith(name)))) << "nobody told it";
  }
}

TEST(RankEnvironment, TheUsersOwnIsKeptExactlyAndInOrder) {
  const std::vector<std::string> own = {"Z=1", "EMPTY=", "no equals sign", "A=x=y\nz",
                                        "LOCKSTEP_RANKS=mine"};
  auto all = rank_environment(own, settings(), 0);
  all.resize(own.size());
  EXPECT_EQ(all, own);
}

TEST(RankEnvironment, AnOuterLaunchIsReplaced) {
  const auto all = rank_environment({"LOCKSTEP_RANK=9", "TF_CONFIG={}"}, settings(), 0);
  EXPECT_THAT(all, Not(Contains("LOCKSTEP_RANK=9")));
  EXPECT_THAT(all, Not(Contains("TF_CONFIG={}")));
}

TEST(RankEnvironment, KeyAndSecurityAsTold) {
  ClusterSettings cluster = settings();
  EXPECT_THAT(rank_environment({"LOCKSTEP_KEY=k"}, cluster, 0), Contains("LOCKSTEP_KEY=k"));
  cluster.key_file = "/run/key";
  cluster.bind = "10.0.0.1";
  cluster.insecure = true;
  cluster.plaintext_data = true;
  cluster.history_dir = "/logs";
  const auto all = rank_environment({"LOCKSTEP_KEY=k"}, cluster, 0);
  EXPECT_THAT(all, IsSupersetOf({"LOCKSTEP_KEY_FILE=/run/key", "LOCKSTEP_BIND=10.0.0.1",
                                 "LOCKSTEP_INSECURE=1", "LOCKSTEP_PLAINTEXT_DATA=1",
                                 "LOCKSTEP_HISTORY_DIR=/logs"}));
  EXPECT_THAT(all, Not(Contains("LOCKSTEP_KEY=k"))) << "two keys";
}

}  // namespace
}  // namespace lockstep::tool
