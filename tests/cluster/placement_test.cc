#include "cluster/placement.h"

#include "lockstep/launcher_resolvers.h"
#include "tests/cluster/variables.h"

namespace lockstep::cluster {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Addresses = std::vector<std::string>;

const Variables kOwn = {{"LOCKSTEP_RANK", "1"}, {"LOCKSTEP_ADDRESSES", "a:1,b:1"}};
const Variables kTfConfig = {
    {"TF_CONFIG", R"({"cluster": {"worker": ["w0:1", "w1:1"], "chief": ["c:1"], "ps": ["p:1"]},
                      "task": {"type": "worker", "index": 1}})"}};
const Variables kTorchrun = {
    {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "m"}, {"MASTER_PORT", "29500"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "4"},
                            {"OMPI_COMM_WORLD_SIZE", "5"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "5"},
                            {"PMIX_NAMESPACE", "77"}};
const Variables kSlurm = {{"SLURM_PROCID", "5"},
                          {"SLURM_STEP_NUM_TASKS", "6"},
                          {"SLURM_STEP_NODELIST", "n2,n[10-11]"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"}};

Placement place(const Variables& variables) { return from_environment(view_of(variables)); }
std::string refused(const Variables& variables) {
  return message_of<ConfigError>([&] { place(variables); });
}

TEST(Placement, NothingIsOneRank) {
  EXPECT_EQ(place({}), Placement());
  EXPECT_EQ(place({}).size(), 1);
  EXPECT_THAT(place({}).addresses, ElementsAre(""));
}

TEST(Placement, OwnVariables) {
  EXPECT_EQ(place(kOwn), (Placement{1, {"a:1", "b:1"}, "LOCKSTEP_ADDRESSES", ""}));
  EXPECT_EQ(place({{"LOCKSTEP_RANK", "3"}, {"LOCKSTEP_ADDRESSES", "[fd00::1]:4,,unix:/run/x,"}})
                .addresses,
            (Addresses{"[fd00::1]:4", "", "unix:/run/x", ""}));
  EXPECT_EQ(place({{"LOCKSTEP_RANK", "0"}, {"LOCKSTEP_ADDRESSES", "a:1"}}).size(), 1);
}

TEST(Placement, OwnVariablesAreChecked) {
  const auto addresses = [](const std::string& list) {
    return refused({{"LOCKSTEP_RANK", "0"}, {"LOCKSTEP_ADDRESSES", list}});
  };
  EXPECT_THAT(addresses(""), AllOf(HasSubstr("LOCKSTEP_ADDRESSES"), HasSubstr("rank 0")));
  EXPECT_THAT(addresses(",a:1"), HasSubstr("rank 0 has no address"));
  EXPECT_THAT(addresses("a:1,b"),
              AllOf(HasSubstr("LOCKSTEP_ADDRESSES, byte 4"), HasSubstr("port")));
  EXPECT_THAT(addresses("a:1, b:1"), AllOf(HasSubstr("byte 4"), HasSubstr("space")));
  EXPECT_THAT(addresses("a:1,b:0"), HasSubstr("port 0"));
  EXPECT_THAT(addresses("a:1,b:1,a:1"), AllOf(HasSubstr("entry 0"), HasSubstr("entry 2")));
  EXPECT_THAT(addresses("localhost:1,b:1"), HasSubstr("only its own host"));
  EXPECT_THAT(addresses("a:1" + std::string(65536, ',')), HasSubstr("more than 65536 ranks"));
  EXPECT_EQ(
      place({{"LOCKSTEP_RANK", "65535"}, {"LOCKSTEP_ADDRESSES", "a:1" + std::string(65535, ',')}})
          .size(),
      65536);
  for (const char* rank : {"2", "-1", "", "one", "1 "}) {
    EXPECT_THAT(refused(with(kOwn, {{"LOCKSTEP_RANK", rank}})),
                AllOf(HasSubstr("LOCKSTEP_RANK, byte"), HasSubstr("0 to 1")));
  }
  EXPECT_THAT(refused(without(kOwn, "LOCKSTEP_RANK")), HasSubstr("LOCKSTEP_RANK is not set"));
  EXPECT_THAT(refused(without(kOwn, "LOCKSTEP_ADDRESSES")),
              HasSubstr("LOCKSTEP_ADDRESSES is not set"));
}

TEST(Placement, TfConfigCountsTheChiefThenWorkers) {
  EXPECT_EQ(place(kTfConfig), (Placement{2, {"c:1", "w0:1", "w1:1"}, "TF_CONFIG", ""}));
  EXPECT_EQ(place({{"TF_CONFIG", R"({"cluster": {"worker": {"7": "b:1", "2": "a:1"}},
                                     "task": {"type": "worker", "index": "7"}})"}}),
            (Placement{1, {"a:1", "b:1"}, "TF_CONFIG", ""}));
}

std::string config(const std::string& type, const std::string& index) {
  return R"({"cluster": {"worker": ["w0:1", "w1:1"], "ps": ["p:1"]}, "task": {"type": ")" + type +
         R"(", "index": )" + index + "}}";
}

TEST(Placement, TasksThatAreNoRanks) {
  for (const char* type : {"ps", "evaluator"}) {
    EXPECT_THAT(refused({{"TF_CONFIG", config(type, "0")}}),
                AllOf(HasSubstr("TF_CONFIG"), HasSubstr(std::string("'") + type + "' is no rank")));
  }
  for (const char* type : {"chief", "trainer", ""}) {
    EXPECT_THAT(refused({{"TF_CONFIG", config(type, "0")}}),
                AllOf(HasSubstr(std::string("'") + type + "'"), HasSubstr("ps, worker")));
  }
  for (const char* index : {"2", "-1", "2147483647"}) {
    EXPECT_THAT(refused({{"TF_CONFIG", config("worker", index)}}),
                AllOf(HasSubstr("TF_CONFIG"), HasSubstr(index)));
  }
  EXPECT_THAT(refused({{"TF_CONFIG", config("worker", "2")}}), HasSubstr("which has 2 tasks"));
}

TEST(Placement, TfConfigWithoutClusterIsOneRank) {
  EXPECT_EQ(place({{"TF_CONFIG", "{}"}}), Placement());
  const Logged logged;
  EXPECT_EQ(place({{"TF_CONFIG", R"({"task": {"type": "worker", "index": 0}})"}}), Placement());
  EXPECT_THAT(logged.lines(), ElementsAre(HasSubstr("no \"cluster\"")));
  // Others may know more.
  EXPECT_EQ(place(with(kTorchrun, {{"TF_CONFIG", "{}"}})).source, "torchrun");
}

TEST(Placement, TfConfigWithoutTaskIsAnError) {
  const std::string cluster = R"({"cluster": {"worker": ["a:1"]})";
  EXPECT_THAT(refused({{"TF_CONFIG", cluster + "}"}}),
              AllOf(HasSubstr("TF_CONFIG"), HasSubstr("the task's type")));
  EXPECT_THAT(refused({{"TF_CONFIG", cluster + R"(, "task": {"type": "worker"}})"}}),
              HasSubstr("the task's index"));
  EXPECT_THAT(refused({{"TF_CONFIG", ""}}), HasSubstr("TF_CONFIG, byte 0"));
}

TEST(Placement, Launchers) {
  EXPECT_EQ(place(kTorchrun), (Placement{3, {"m:29500", "", "", ""}, "torchrun", ""}));
  EXPECT_EQ(place(kOpenMpi), (Placement{4, Addresses(5), "Open MPI", "openmpi-77"}));
  EXPECT_EQ(
      place(kSlurm),
      (Placement{
          5, {"n2:8888", "n2:8889", "n10:8888", "n10:8889", "n11:8888", "n11:8889"}, "Slurm", ""}));
  EXPECT_EQ(place({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"LOCKSTEP_MASTER", "a:1"}}),
            (Placement{1, {"a:1", ""}, "MPICH", ""}));
  EXPECT_THAT(refused({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), HasSubstr("LOCKSTEP_MASTER"));
}

TEST(Placement, SlurmDealsRanksOutAsItListsHosts) {
  EXPECT_EQ(place(with(kSlurm, {{"SLURM_STEP_NODELIST", "z1,b[1-2]"}})).addresses.front(),
            "z1:8888");
}

TEST(Placement, PrecedenceAndOneWarningAboutOthers) {
  Variables variables;
  const auto expect = [&variables](const Variables& next, const std::string& source, int rank,
                                   const std::string& warning) {
    variables.insert(next.begin(), next.end());
    const Logged logged;
    const Placement placement = place(variables);
    EXPECT_EQ(placement.source, source);
    EXPECT_EQ(placement.rank, rank);
    if (warning.empty()) {
      EXPECT_THAT(logged.lines(), IsEmpty());
    } else {
      EXPECT_THAT(logged.lines(),
                  ElementsAre(AllOf(HasSubstr("by " + source), HasSubstr(warning))));
    }
  };
  expect(kSlurm, "Slurm", 5, "");
  expect(kOpenMpi, "Open MPI", 4, "Slurm says rank 5 of 6");
  expect(kTorchrun, "torchrun", 3, "Open MPI says rank 4 of 5, Slurm says rank 5 of 6");
  expect(kOwn, "LOCKSTEP_ADDRESSES", 1, "torchrun says rank 3 of 4, Open MPI says rank 4 of 5");
  expect(kTfConfig, "TF_CONFIG", 2,
         "LOCKSTEP_ADDRESSES says rank 1 of 2, torchrun says rank 3 of 4");
}

TEST(Placement, ContradictionsInRankOrInSizeAlone) {
  const auto warning = [](const char* rank, const char* size) {
    const Logged logged;
    place(with(kOwn, {{"RANK", rank}, {"WORLD_SIZE", size}}));
    return logged.lines();
  };
  EXPECT_THAT(warning("0", "2"), ElementsAre(HasSubstr("torchrun says rank 0 of 2")));
  EXPECT_THAT(warning("1", "3"), ElementsAre(HasSubstr("torchrun says rank 1 of 3")));
  EXPECT_THAT(warning("1", "2"), IsEmpty());
}

TEST(Placement, OthersThatAgreeOrCannotBeReadAreNoMatter) {
  const Logged logged;
  EXPECT_EQ(place(with(kOwn, {{"RANK", "1"}, {"WORLD_SIZE", "2"}})).rank, 1);
  EXPECT_EQ(place(with(kOwn, {{"RANK", "x"}, {"WORLD_SIZE", "2"}, {"PMI_RANK", "x"}})).rank, 1);
  EXPECT_EQ(place({{"RANK", "1"}}), Placement());  // somebody else's RANK
  EXPECT_THAT(logged.lines(), IsEmpty());
}

TEST(Placement, SlurmKnowsTheAddressesOfMpiRanks) {
  EXPECT_EQ(place(with(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}})), place(kSlurm));
  EXPECT_EQ(place(with(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}, {"LOCKSTEP_MASTER", "a:1"}}))
                .source,
            "MPICH");
}

TEST(Placement, ABatchScriptIsAlone) {
  const Logged logged;
  EXPECT_EQ(place({{"SLURM_JOB_ID", "7"},
                   {"SLURM_PROCID", "0"},
                   {"SLURM_NTASKS", "8"},
                   {"SLURM_NODELIST", "n[1-2]"},
                   {"SLURM_TASKS_PER_NODE", "4(x2)"}}),
            Placement());
  EXPECT_THAT(logged.lines(), ElementsAre(AllOf(HasSubstr("8 tasks"), HasSubstr("srun"))));
}

TEST(Placement, OfAResolver) {
  const ClusterSpec cluster{{"chief", {"c:1"}}, {"worker", {"w:1", ""}}};
  EXPECT_EQ(placement_of(SimpleClusterResolver(cluster, {.task_type = "worker", .task_id = 1})),
            (Placement{2, {"c:1", "w:1", ""}, "SimpleClusterResolver", ""}));
  EXPECT_EQ(placement_of(SimpleClusterResolver({})).size(), 1);
  EXPECT_EQ(
      placement_of(TfConfigResolver({.task_type = "chief", .task_id = 0}, view_of(kTfConfig))).rank,
      0);
  const auto wrong = [](const ClusterSpec& spec) {
    return message_of<ConfigError>(
        [&] { placement_of(SimpleClusterResolver(spec, {.task_type = "worker", .task_id = 0})); });
  };
  EXPECT_THAT(wrong({{"worker", {"", "w:1"}}}), HasSubstr("worker 0 has no address"));
  EXPECT_THAT(wrong({{"worker", {"w:1", "w:1"}}}),
              AllOf(HasSubstr("worker 0"), HasSubstr("worker 1")));
  EXPECT_THAT(message_of<ConfigError>([&] { placement_of(SimpleClusterResolver(cluster)); }),
              HasSubstr("the task's type"));
}

}  // namespace
}  // namespace lockstep::cluster
