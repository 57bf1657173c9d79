#include "lockstep/resolve_cluster.h"

#include "cluster/placement.h"
#include "lockstep/kubernetes_resolver.h"
#include "lockstep/launcher_resolvers.h"
#include "tests/cluster/variables.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using FoundIn = ResolvedCluster::FoundIn;

const Variables kOwn = {{"LOCKSTEP_RANK", "1"}, {"LOCKSTEP_ADDRESSES", "a:1,b:1"}};
const Variables kTfConfig = {{"TF_CONFIG", R"({"cluster": {"worker": ["w0:1", "w1:1"]},
                                               "task": {"type": "worker", "index": 1}})"}};
const Variables kPs = {{"TF_CONFIG", R"({"cluster": {"worker": ["w0:1", "w1:1"], "ps": ["p:1"]},
                                         "task": {"type": "ps", "index": 0}})"}};
const Variables kTorchrun = {
    {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "m"}, {"MASTER_PORT", "29500"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "0"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_NAMESPACE", "77"}};
const Variables kSlurm = {{"SLURM_PROCID", "1"},
                          {"SLURM_STEP_NUM_TASKS", "2"},
                          {"SLURM_STEP_NODELIST", "n[1-2]"},
                          {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}};

ResolvedCluster resolved(const Variables& variables) {
  return resolve_cluster({}, view_of(variables));
}

/// Everything is logged during its life.
struct AllLogged : Logged {
  AllLogged() { set_log_level(LogLevel::info); }
  ~AllLogged() { set_log_level(LogLevel::warning); }
};

TEST(ResolveCluster, NothingIsAnEmptyCluster) {
  const AllLogged logged;
  const ResolvedCluster found = resolved({});
  EXPECT_FALSE(found.resolver->cluster_spec());
  EXPECT_EQ(found.resolver->task_type(), std::nullopt);
  EXPECT_EQ(found.found_in, FoundIn());
  EXPECT_THAT(found.ignored, IsEmpty());
  EXPECT_THAT(logged.lines(), ElementsAre("this process is alone"));
}

TEST(ResolveCluster, EachSourceSaysWhereItsFactsStand) {
  const std::string workers = "every rank is a worker";
  EXPECT_EQ(resolved(kOwn).found_in, (FoundIn{"LOCKSTEP_ADDRESSES", workers, "LOCKSTEP_RANK"}));
  EXPECT_EQ(resolved(kTfConfig).found_in,
            (FoundIn{R"(TF_CONFIG, "cluster")", R"(TF_CONFIG, "task", "type")",
                     R"(TF_CONFIG, "task", "index")"}));
  EXPECT_EQ(resolved(kTorchrun).found_in,
            (FoundIn{"WORLD_SIZE, MASTER_ADDR, MASTER_PORT", workers, "RANK"}));
  EXPECT_EQ(resolved(with(kTorchrun, {{"LOCKSTEP_MASTER", "a:1"}})).found_in.cluster,
            "WORLD_SIZE, LOCKSTEP_MASTER");
  EXPECT_EQ(resolved(kOpenMpi).found_in,
            (FoundIn{"OMPI_COMM_WORLD_SIZE", workers, "OMPI_COMM_WORLD_RANK"}));
  EXPECT_EQ(resolved({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).found_in,
            (FoundIn{"PMI_SIZE", workers, "PMI_RANK"}));
  EXPECT_EQ(resolved(kSlurm).found_in,
            (FoundIn{"SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE",
                     workers, "SLURM_PROCID"}));
}

TEST(ResolveCluster, OwnVariablesMakeWorkers) {
  const ResolvedCluster found = resolved(kOwn);
  EXPECT_EQ(found.resolver->cluster_spec(), ClusterSpec({{"worker", {"a:1", "b:1"}}}));
  EXPECT_EQ(found.resolver->task_type(), "worker");
  EXPECT_EQ(found.resolver->task_id(), 1);
}

TEST(ResolveCluster, OthersAreListedInOrder) {
  const AllLogged logged;
  const ResolvedCluster found = resolved(with(with(with(kOwn, kTfConfig), kTorchrun), kSlurm));
  EXPECT_EQ(found.resolver->source(), "TF_CONFIG");
  const std::string same = "says the same rank and size";
  EXPECT_THAT(found.ignored, ElementsAre(IgnoredCluster{"LOCKSTEP_ADDRESSES", same},
                                         IgnoredCluster{"torchrun", "says rank 3 of 4"},
                                         IgnoredCluster{"Slurm", same}));
  EXPECT_THAT(logged.lines(),
              ElementsAre("this is rank 1 of 2 by TF_CONFIG; ignored: LOCKSTEP_ADDRESSES " + same +
                          ", torchrun says rank 3 of 4, Slurm " + same));
}

/// TF_CONFIG of worker 1, or another, in a cluster with these workers.
Variables tf_config(const std::string& workers, int index = 1) {
  return {{"TF_CONFIG", R"({"cluster": {"worker": [)" + workers +
                            R"(]}, "task": {"type": "worker", "index": )" + std::to_string(index) +
                            "}}"}};
}

// `lockstep launch` sets both, for programs of others; its own variables know sockets, for example.
TEST(ResolveCluster, TfConfigLeavesItsOwnClusterToTheLauncher) {
  const Variables sockets = {{"LOCKSTEP_RANK", "1"}, {"LOCKSTEP_ADDRESSES", "unix:/d/0,unix:/d/1"}};
  const Variables ports = tf_config(R"("localhost:4000", "localhost:4001")");
  const Variables hosts = tf_config(R"("a:1", "b:1")");
  const AllLogged logged;
  for (const Variables& launched : {with(sockets, ports), with(kOwn, hosts)}) {
    const ResolvedCluster found = resolved(launched);
    EXPECT_EQ(found.resolver->source(), "LOCKSTEP_ADDRESSES");
    EXPECT_THAT(
        found.ignored,
        ElementsAre(IgnoredCluster{
            "TF_CONFIG", "says the same as LOCKSTEP_ADDRESSES, which knows more about the ranks"}));
  }
  EXPECT_THAT(logged.lines()[0], HasSubstr("this is rank 1 of 2 by LOCKSTEP_ADDRESSES; ignored: "
                                           "TF_CONFIG says the same as LOCKSTEP_ADDRESSES"));
}

TEST(ResolveCluster, TfConfigThatSaysSomethingElseGoesBeforeTheLauncher) {
  const Variables sockets = {{"LOCKSTEP_RANK", "1"}, {"LOCKSTEP_ADDRESSES", "unix:/d/0,unix:/d/1"}};
  const Logged logged;
  for (const Variables& other : {
           with(sockets, tf_config(R"("localhost:4000", "localhost:4001")", 0)),  // another task
           with(sockets, tf_config(R"("localhost:4000", "localhost:4001", "localhost:4002")")),
           with(sockets, tf_config(R"("a:1", "b:1")")),  // other places
           with(kOwn, tf_config(R"("a:1", "c:1")")), with(kOwn, kPs),
           with(kTfConfig, {{"LOCKSTEP_RANK", "0"}}),  // half a description
       }) {
    EXPECT_EQ(resolved(other).resolver->source(), "TF_CONFIG");
  }
  EXPECT_THAT(logged.lines(),
              ElementsAre("this is rank 0 of 2 by TF_CONFIG; ignored: LOCKSTEP_ADDRESSES says rank "
                          "1 of 2",
                          "this is rank 1 of 3 by TF_CONFIG; ignored: LOCKSTEP_ADDRESSES says rank "
                          "1 of 2"));
}

TEST(ResolveCluster, OnlyAContradictionIsAWarning) {
  const Logged logged;
  resolved(with(kOwn, kSlurm));
  EXPECT_THAT(logged.lines(), IsEmpty());
  resolved(with(kOwn, kTorchrun));
  EXPECT_THAT(logged.lines(), ElementsAre(HasSubstr("torchrun says rank 3 of 4")));
}

TEST(ResolveCluster, OnesThatCannotBeReadAreNamed) {
  const AllLogged logged;
  EXPECT_THAT(
      resolved(with(kTfConfig, {{"LOCKSTEP_RANK", "0"}, {"RANK", "x"}, {"WORLD_SIZE", "2"}}))
          .ignored,
      ElementsAre(AllOf(testing::Field(&IgnoredCluster::source, "LOCKSTEP_ADDRESSES"),
                        testing::Field(&IgnoredCluster::reason,
                                       HasSubstr("gives no rank (LOCKSTEP_ADDRESSES is not set"))),
                  testing::Field(&IgnoredCluster::reason, HasSubstr("RANK, byte 0"))));
  EXPECT_THAT(logged.lines(), ElementsAre(HasSubstr("ignored: LOCKSTEP_ADDRESSES gives no rank")));
}

TEST(ResolveCluster, VariablesThatDescribeNothingAreNamed) {
  EXPECT_THAT(
      resolved({{"RANK", "1"}, {"TF_CONFIG", "{}"}}).ignored,
      ElementsAre(IgnoredCluster{"TF_CONFIG", "has no \"cluster\""},
                  IgnoredCluster{"RANK", "is set without WORLD_SIZE, so it is not torchrun's"}));
  EXPECT_THAT(
      resolved(with(kSlurm, {{"WORLD_SIZE", "1"}})).ignored,
      ElementsAre(IgnoredCluster{"WORLD_SIZE", "is set without RANK, so it is not torchrun's"}));
}

TEST(ResolveCluster, ABatchScriptMattersOnlyIfNothingElseIsThere) {
  const Variables batch = {
      {"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_NODELIST", "n"}};
  const Logged logged;
  EXPECT_THAT(resolved(with(kOwn, batch)).ignored, ElementsAre(testing::_));
  EXPECT_THAT(logged.lines(), IsEmpty());
  resolved(batch);
  EXPECT_THAT(logged.lines(), ElementsAre(HasSubstr("start it with srun")));
}

TEST(ResolveCluster, MpiRanksOfSlurmAreSlurms) {
  const ResolvedCluster found = resolved(with(kSlurm, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}));
  EXPECT_EQ(found.resolver->source(), "Slurm");
  EXPECT_THAT(found.ignored, ElementsAre(IgnoredCluster{
                                 "MPICH", "says the same as Slurm, which knows the addresses"}));
}

TEST(ResolveCluster, AParameterServerIsATaskAndNoRank) {
  const AllLogged logged;
  const ResolvedCluster found = resolved(with(kPs, kTorchrun));
  EXPECT_EQ(found.resolver->task_type(), "ps");
  EXPECT_THAT(logged.lines(),
              ElementsAre("the cluster is that of TF_CONFIG; ignored: torchrun says "
                          "rank 3 of 4"));
  EXPECT_THROW(cluster::from_environment(view_of(kPs)), ConfigError);
}

TEST(ResolveCluster, AGivenResolverGoesBeforeAll) {
  const Logged logged;
  const ResolvedCluster found = resolve_cluster(
      SimpleClusterResolver({{"worker", {"x:1", "y:1"}}}, {.task_type = "worker", .task_id = 0}),
      view_of(with(with(kOwn, kOpenMpi), {{"TF_CONFIG", "nonsense"}})));
  EXPECT_EQ(found.resolver->source(), "SimpleClusterResolver");
  EXPECT_EQ(found.found_in.cluster, "SimpleClusterResolver");
  EXPECT_THAT(logged.lines(),
              ElementsAre(AllOf(HasSubstr("this is rank 0 of 2 by SimpleClusterResolver"),
                                HasSubstr("LOCKSTEP_ADDRESSES says rank 1 of 2"),
                                HasSubstr("Open MPI says the same rank and size"))));
  // Also one that says there is no cluster.
  EXPECT_FALSE(
      resolve_cluster(SimpleClusterResolver({}), view_of(kTfConfig)).resolver->cluster_spec());
}

TEST(ResolveCluster, AGivenResolverIsNotIgnoredBesideItself) {
  const EnvironmentView variables = view_of(kTfConfig);
  EXPECT_THAT(resolve_cluster(TfConfigResolver({}, variables), variables).ignored, IsEmpty());
}

TEST(ResolveCluster, AGivenResolverIsNotAskedWithoutNeed) {
  int asked = 0;
  const KubernetesResolver pods(PodList::from([&asked] {
    ++asked;
    return std::string(R"({"items": []})");
  }));
  resolve_cluster(pods, view_of({}));
  EXPECT_EQ(asked, 0);
}

TEST(ResolveCluster, TheOneThatDecidesMustBeRight) {
  for (const auto& [variables, named] : std::vector<std::pair<Variables, std::string>>{
           {with(kTorchrun, {{"LOCKSTEP_RANK", "0"}}), "LOCKSTEP_ADDRESSES"},
           {with(kOwn, {{"TF_CONFIG", "nonsense"}}), "TF_CONFIG"},
           {with(kTorchrun, {{"TF_CONFIG", "nonsense"}}), "TF_CONFIG"},
           {with(kSlurm, {{"RANK", "x"}, {"WORLD_SIZE", "2"}}), "RANK"}}) {
    const Variables& wrong = variables;
    EXPECT_THAT(message_of<ConfigError>([&] { resolved(wrong); }), HasSubstr(named));
  }
}

}  // namespace
}  // namespace lockstep
