#include <set>

#include "cluster/slurm_lists.h"
#include "lockstep/launcher_resolvers.h"
#include "tests/cluster/variables.h"

namespace lockstep {
namespace {

using cluster::expand_counts;
using cluster::expand_nodes;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

std::vector<std::string> nodes(const std::string& text) {
  return expand_nodes({.name = "SLURM_STEP_NODELIST", .text = text});
}
std::vector<int> counts(const std::string& text) {
  return expand_counts({.name = "SLURM_STEP_TASKS_PER_NODE", .text = text});
}

TEST(SlurmLists, Nodes) {
  EXPECT_THAT(nodes("n1"), ElementsAre("n1"));
  EXPECT_THAT(nodes("n[1-2],m5,o[3-4,6,7-9]"),
              ElementsAre("n1", "n2", "m5", "o3", "o4", "o6", "o7", "o8", "o9"));
  EXPECT_THAT(nodes("t02n[13,41,43,44]"), ElementsAre("t02n13", "t02n41", "t02n43", "t02n44"));
  EXPECT_THAT(nodes("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(nodes("r[1-2]n[1-2]-ib"), ElementsAre("r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"));
  EXPECT_THAT(nodes("[1-2]"), ElementsAre("1", "2"));
  EXPECT_THAT(nodes("node_a.example-1"), ElementsAre("node_a.example-1"));
}

TEST(SlurmLists, WidthsAreKept) {
  EXPECT_THAT(nodes("n[01-02]"), ElementsAre("n01", "n02"));
  EXPECT_THAT(nodes("n[08-11,7]"), ElementsAre("n08", "n09", "n10", "n11", "n7"));
  EXPECT_THAT(nodes("n[099-101]"), ElementsAre("n099", "n100", "n101"));
  EXPECT_THAT(nodes("n[1,01]"), ElementsAre("n1", "n01"));
}

TEST(SlurmLists, TheLimitIs65536Names) {
  EXPECT_EQ(nodes("n[0-65535]").size(), 65536U);
  EXPECT_EQ(nodes("a[0-255]b[0-255]").size(), 65536U);
  EXPECT_EQ(nodes("a[0-65534],b").size(), 65536U);
  for (const char* text :
       {"n[0-65536]", "n[0-999999999]", "n[0-999999999999999999]", "n[0-65535],m", "m,n[0-65535]",
        "a[0-255]b[0-256]", "a[0-999]b[0-999]c[0-999]d[0-999]", "n[0-65535,70000]"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { nodes(text); }), HasSubstr("more than 65536 names"))
        << text;
  }
  const std::string longest(249, 'x');
  EXPECT_EQ(nodes(longest + "[1000-1001]").back().size(), 253U);
  EXPECT_THAT(message_of<ConfigError>([&] { nodes(longest + "x[1000-1001]"); }),
              HasSubstr("longer than 253 bytes"));
}

struct Wrong {
  std::string text;
  std::size_t offset;
  std::string rule;
};

class WrongNodes : public testing::TestWithParam<Wrong> {};
TEST_P(WrongNodes, NamesVariableByteAndRule) {
  EXPECT_THAT(
      message_of<ConfigError>([&] { nodes(GetParam().text); }),
      AllOf(HasSubstr("SLURM_STEP_NODELIST, byte " + std::to_string(GetParam().offset) + ":"),
            HasSubstr(GetParam().rule), HasSubstr("n[01-03,7],m5")))
      << GetParam().text;
}
INSTANTIATE_TEST_SUITE_P(
    Table, WrongNodes,
    testing::Values(Wrong{"", 0, "a name"}, Wrong{",", 0, "a name"}, Wrong{"n1,", 3, "a name"},
                    Wrong{"n1,,n2", 3, "a name"}, Wrong{"n[", 2, "a number"},
                    Wrong{"n[]", 2, "a number"}, Wrong{"n[1", 3, "']'"},
                    Wrong{"n[1-", 4, "a number"}, Wrong{"n[1-]", 4, "a number"},
                    Wrong{"n[-1]", 2, "a number"}, Wrong{"n[1,]", 4, "a number"},
                    Wrong{"n[a]", 2, "a number"}, Wrong{"n[1-2-3]", 5, "']'"},
                    Wrong{"n[1[2]]", 3, "brackets within brackets"}, Wrong{"n[[1]]", 2, "a number"},
                    Wrong{"n[2-1]", 2, "ends before"}, Wrong{"n1]", 2, "is expected"},
                    Wrong{"n 1", 1, "is expected"}, Wrong{"n1;n2", 2, "is expected"},
                    Wrong{"n[1234567890123456789]", 2, "too long"}, Wrong{"n1,n[1-2]", 3, "twice"},
                    Wrong{"n[1,1]", 0, "twice"}));

TEST(SlurmLists, Counts) {
  EXPECT_THAT(counts("3(x2),2,1"), ElementsAre(3, 3, 2, 1));
  EXPECT_THAT(counts("4(x3)"), ElementsAre(4, 4, 4));
  EXPECT_THAT(counts("1"), ElementsAre(1));
  EXPECT_EQ(counts("2(x65536)").size(), 65536U);
}

class WrongCounts : public testing::TestWithParam<Wrong> {};
TEST_P(WrongCounts, NamesVariableByteAndRule) {
  EXPECT_THAT(
      message_of<ConfigError>([&] { counts(GetParam().text); }),
      AllOf(HasSubstr("SLURM_STEP_TASKS_PER_NODE, byte " + std::to_string(GetParam().offset) + ":"),
            HasSubstr(GetParam().rule), HasSubstr("4(x3),2")))
      << GetParam().text;
}
INSTANTIATE_TEST_SUITE_P(
    Table, WrongCounts,
    testing::Values(Wrong{"", 0, "a number"}, Wrong{"a", 0, "a number"}, Wrong{"4(", 2, "'x'"},
                    Wrong{"4(3)", 2, "'x'"}, Wrong{"4(x", 3, "a number"}, Wrong{"4(x3", 4, "')'"},
                    Wrong{"4(x3)2", 5, "','"}, Wrong{"4,", 2, "a number"},
                    Wrong{"0", 0, "1 to 65536"}, Wrong{"4(x0)", 3, "1 to 65536"},
                    Wrong{"4 ", 1, "','"}, Wrong{"-1", 0, "a number"},
                    Wrong{"65537", 0, "1 to 65536"}, Wrong{"1(x999999999)", 3, "1 to 65536"},
                    Wrong{"1(x65536),1", 10, "more than 65536 nodes"}));

TEST(SlurmLists, NumbersInNamesCountAsNumbers) {
  const auto less = cluster::natural_less;
  const std::vector<std::string> sorted = {"",    "m5",   "n",   "n01", "n1",   "n1a",
                                           "n02", "n2-b", "n2a", "n10", "n010b"};
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::size_t j = 0; j < sorted.size(); ++j) {
      EXPECT_EQ(less(sorted[i], sorted[j]), i < j) << sorted[i] << " " << sorted[j];
    }
  }
}

const Variables kStep = {{"SLURM_PROCID", "3"},
                         {"SLURM_STEP_NUM_TASKS", "5"},
                         {"SLURM_STEP_NODELIST", "t02n13,t02n41,t02n43,t02n44"},
                         {"SLURM_STEP_TASKS_PER_NODE", "1,2,1(x2)"}};

TEST(SlurmResolver, WorkersByDefault) {
  const SlurmResolver resolver({}, view_of(kStep));
  EXPECT_EQ(
      resolver.cluster_spec(),
      ClusterSpec({{"worker",
                    {"t02n13:8888", "t02n41:8888", "t02n41:8889", "t02n43:8888", "t02n44:8888"}}}));
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 3);
  EXPECT_EQ(resolver.master(), "t02n43:8888");
  EXPECT_EQ(resolver.master({.task_type = "worker", .task_id = 0, .rpc_layer = "grpc"}),
            "grpc://t02n13:8888");
  EXPECT_THAT(resolver.num_accelerators(), IsEmpty());
  EXPECT_EQ(resolver.cuda_visible_devices(), std::nullopt);
}

/// Two steps on the same nodes need different ports, which the command that starts them can choose.
TEST(SlurmResolver, ThePortIsTheEnvironmentsUnlessTheProgramSaysOne) {
  Variables step = kStep;
  step["LOCKSTEP_PORT_BASE"] = "9100";
  EXPECT_EQ(SlurmResolver({}, view_of(step)).master(), "t02n43:9100");
  EXPECT_EQ(SlurmResolver({.port_base = 1337}, view_of(step)).master(), "t02n43:1337");
  step["LOCKSTEP_PORT_BASE"] = "70000";
  EXPECT_THROW(SlurmResolver({}, view_of(step)), ConfigError);
}

TEST(SlurmResolver, JobsTakeRanksInAlphabeticalOrder) {
  const SlurmResolver resolver(
      {.jobs = {{"worker", 4}, {"ps", 1}}, .port_base = 1337, .rpc_layer = "grpc"}, view_of(kStep));
  EXPECT_EQ(
      resolver.cluster_spec(),
      ClusterSpec({{"ps", {"t02n13:1337"}},
                   {"worker", {"t02n41:1337", "t02n41:1338", "t02n43:1337", "t02n44:1337"}}}));
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 2);
  EXPECT_EQ(resolver.master(), "grpc://t02n43:1337");
  const SlurmResolver first({.jobs = {{"worker", 4}, {"ps", 1}}},
                            view_of(with(kStep, {{"SLURM_PROCID", "0"}})));
  EXPECT_EQ(first.task_type(), "ps");
  EXPECT_EQ(first.task_id(), 0);
}

TEST(SlurmResolver, HostsAreSortedUnlessListedOrderIsAskedFor) {
  const auto view = view_of({{"SLURM_PROCID", "0"},
                             {"SLURM_STEP_NUM_TASKS", "4"},
                             {"SLURM_STEP_NODELIST", "n10,n2,m[1]"},
                             {"SLURM_STEP_TASKS_PER_NODE", "2,1,1"}});
  EXPECT_EQ(SlurmResolver({}, view).cluster_spec(),
            ClusterSpec({{"worker", {"m1:8888", "n2:8888", "n10:8888", "n10:8889"}}}));
  EXPECT_EQ(SlurmResolver({.order = HostOrder::as_listed}, view).cluster_spec(),
            ClusterSpec({{"worker", {"n10:8888", "n10:8889", "n2:8888", "m1:8888"}}}));
}

TEST(SlurmResolver, TheJobsVariablesServeWhereThereIsNoStep) {
  const Variables job = {{"SLURM_PROCID", "1"},
                         {"SLURM_NTASKS", "2"},
                         {"SLURM_NODELIST", "n[01-02]"},
                         {"SLURM_TASKS_PER_NODE", "1(x2)"},
                         {"SLURM_JOB_NUM_NODES", "2"}};
  EXPECT_EQ(SlurmResolver({}, view_of(job)).cluster_spec(),
            ClusterSpec({{"worker", {"n01:8888", "n02:8888"}}}));
  EXPECT_THAT(message_of<ConfigError>([&] {
                SlurmResolver({}, view_of(with(job, {{"SLURM_JOB_NUM_NODES", "3"}})));
              }),
              AllOf(HasSubstr("SLURM_NODELIST lists 2"), HasSubstr("SLURM_JOB_NUM_NODES says 3")));
  // A batch script runs by itself, on the first node.
  EXPECT_THAT(message_of<ConfigError>([&] {
                SlurmResolver({}, view_of(with(job, {{"SLURM_JOB_ID", "77"}})));
              }),
              HasSubstr("SLURM_STEP_NUM_TASKS is not set"));
}

TEST(SlurmResolver, TasksOfOneNodeMeetUnderTheStepsName) {
  const Variables one_node = {{"SLURM_PROCID", "1"},         {"SLURM_STEP_NUM_TASKS", "2"},
                              {"SLURM_STEP_NODELIST", "n1"}, {"SLURM_STEP_TASKS_PER_NODE", "2"},
                              {"SLURM_JOB_ID", "77"},        {"SLURM_STEP_ID", "3"}};
  const SlurmResolver resolver({}, view_of(one_node));
  EXPECT_EQ(resolver.meeting(), "slurm-77-3-8888");
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"worker", {"n1:8888", "n1:8889"}}}));
  EXPECT_EQ(SlurmResolver({.port_base = 9000}, view_of(one_node)).meeting(), "slurm-77-3-9000");
  EXPECT_EQ(SlurmResolver({}, view_of(without(one_node, "SLURM_JOB_ID"))).meeting(), "");
  EXPECT_EQ(SlurmResolver({}, view_of(with(one_node, {{"SLURM_STEP_NUM_TASKS", "1"},
                                                      {"SLURM_PROCID", "0"},
                                                      {"SLURM_STEP_TASKS_PER_NODE", "1"}})))
                .meeting(),
            "");
  const Variables several = with(kStep, {{"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "3"}});
  EXPECT_EQ(SlurmResolver({}, view_of(several)).meeting(), "");
}

TEST(SlurmResolver, MissingVariablesAreNamed) {
  for (const auto& [name, value] : kStep) {
    EXPECT_THAT(message_of<ConfigError>(
                    [&, &name = name] { SlurmResolver({}, view_of(without(kStep, name))); }),
                AllOf(HasSubstr(name), HasSubstr("is not set"), HasSubstr("srun")));
  }
  EXPECT_THAT(message_of<ConfigError>([] { SlurmResolver({}, view_of({})); }),
              HasSubstr("SLURM_PROCID is not set"));
}

TEST(SlurmResolver, VariablesAreChecked) {
  const auto wrong = [](const Variables& more) {
    return message_of<ConfigError>([&] { SlurmResolver({}, view_of(with(kStep, more))); });
  };
  for (const char* rank : {"5", "-1", "", "x", "99999999999", "3 "}) {
    EXPECT_THAT(wrong({{"SLURM_PROCID", rank}}),
                AllOf(HasSubstr("SLURM_PROCID, byte "), HasSubstr("from 0 to 4")));
  }
  EXPECT_THAT(wrong({{"SLURM_STEP_NUM_TASKS", "0"}}), HasSubstr("from 1 to 65536"));
  EXPECT_THAT(wrong({{"SLURM_STEP_NUM_TASKS", "6"}}), HasSubstr("make 5 tasks, but there are 6"));
  EXPECT_THAT(wrong({{"SLURM_STEP_TASKS_PER_NODE", "1,2,2"}}),
              AllOf(HasSubstr("is about 3 nodes"), HasSubstr("has 4")));
  EXPECT_THAT(wrong({{"SLURM_STEP_TASKS_PER_NODE", "65536(x4)"}}), HasSubstr("make 262144 tasks"));
  EXPECT_THAT(wrong({{"SLURM_STEP_NODELIST", "n[0-999999999]"}}), HasSubstr("65536"));
  EXPECT_THAT(wrong({{"SLURM_STEP_NUM_NODES", "3"}}), HasSubstr("SLURM_STEP_NUM_NODES says 3"));
  EXPECT_THAT(wrong({{"SLURMD_NODENAME", "t02n41"}}),
              AllOf(HasSubstr("SLURM_PROCID 3"), HasSubstr("t02n43"), HasSubstr("t02n41")));
  EXPECT_NO_THROW(SlurmResolver({}, view_of(with(kStep, {{"SLURMD_NODENAME", "t02n43"}}))));
}

TEST(SlurmResolver, OptionsAreChecked) {
  const auto view = view_of(kStep);
  using Jobs = std::map<std::string, int>;
  for (const Jobs& jobs : {Jobs{{"worker", 4}}, Jobs{{"worker", 6}}, Jobs{{"ps", 6}, {"worker", 1}},
                           Jobs{{"a", 2147483647}, {"b", 2147483647}}}) {
    EXPECT_THAT(message_of<ConfigError>([&] { SlurmResolver({.jobs = jobs}, view); }),
                HasSubstr("the 5 tasks"));
  }
  EXPECT_THAT(message_of<InvalidUsage>([&] {
                SlurmResolver({.jobs = {{"ps", 0}}}, view);
              }),
              HasSubstr("jobs is 0"));
  EXPECT_THAT(message_of<InvalidUsage>([&] { SlurmResolver({.port_base = 0}, view); }),
              HasSubstr("port_base"));
  EXPECT_THAT(message_of<ConfigError>([&] { SlurmResolver({.port_base = 65535}, view); }),
              AllOf(HasSubstr("t02n41"), HasSubstr("65535")));
  EXPECT_EQ(SlurmResolver({.tasks_per_node = 2}, view_of({{"SLURM_PROCID", "3"},
                                                          {"SLURM_STEP_NUM_TASKS", "4"},
                                                          {"SLURM_STEP_NODELIST", "n[1-2]"}}))
                .cluster_spec(),
            ClusterSpec({{"worker", {"n1:8888", "n1:8889", "n2:8888", "n2:8889"}}}));
}

TEST(SlurmResolver, Gpus) {
  const Variables step = {{"SLURM_PROCID", "3"},
                          {"SLURM_STEP_NUM_TASKS", "4"},
                          {"SLURM_STEP_NODELIST", "n[1-2]"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                          {"CUDA_VISIBLE_DEVICES", "0,1,2,3"}};
  const SlurmResolver resolver({}, view_of(step));
  EXPECT_THAT(resolver.num_accelerators(), ElementsAre(Pair("GPU", 2)));
  EXPECT_EQ(resolver.cuda_visible_devices(), "2,3");
  const SlurmResolver first({.gpus_per_task = 1}, view_of(with(step, {{"SLURM_PROCID", "2"}})));
  EXPECT_EQ(first.cuda_visible_devices(), "0");
  EXPECT_THAT(SlurmResolver({.gpus_per_node = 1}, view_of(step)).num_accelerators(), IsEmpty());
  EXPECT_THAT(message_of<ConfigError>([&] { SlurmResolver({.gpus_per_task = 3}, view_of(step)); }),
              AllOf(HasSubstr("2 tasks"), HasSubstr("3 GPUs"), HasSubstr("the 4 it has")));
  EXPECT_THROW(SlurmResolver({.gpus_per_task = -1}, view_of(step)), InvalidUsage);
}

TEST(SlurmResolver, CountsWhatNamesAGpu) {
  const auto per_task = [](const char* visible) {
    const SlurmResolver resolver({}, view_of({{"SLURM_PROCID", "0"},
                                              {"SLURM_STEP_NUM_TASKS", "1"},
                                              {"SLURM_STEP_NODELIST", "n1"},
                                              {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                              {"CUDA_VISIBLE_DEVICES", visible}}));
    const auto told = resolver.num_accelerators();
    return told.empty() ? 0 : told.at("GPU");
  };
  EXPECT_EQ(per_task("3"), 1);
  EXPECT_EQ(per_task("GPU-8932f937-d72c,MIG-41b3"), 2);
  EXPECT_EQ(per_task("0,1,-1,2"), 2);  // as CUDA does
  for (const char* none : {"", "-1", "NoDevFiles", "none", "void", ","}) {
    EXPECT_EQ(per_task(none), 0) << none;
  }
}

}  // namespace
}  // namespace lockstep
