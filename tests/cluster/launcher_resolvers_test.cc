#include "lockstep/launcher_resolvers.h"

#include <unistd.h>

#include "tests/cluster/variables.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Variables kTorchrun = {{"RANK", "1"},         {"WORLD_SIZE", "3"},
                             {"LOCAL_RANK", "1"},   {"LOCAL_WORLD_SIZE", "3"},
                             {"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kMpich = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};

template <class Resolver>
std::string wrong(const Variables& variables) {
  return message_of<ConfigError>([&] { Resolver resolver(view_of(variables)); });
}

TEST(TorchrunResolver, KnowsRankAndMaster) {
  const TorchrunResolver resolver(view_of(kTorchrun));
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"worker", {"n0:29500", "", ""}}}));
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.source(), "torchrun");
  EXPECT_EQ(resolver.master({.task_id = 0}), "n0:29500");
  EXPECT_EQ(resolver.master(), "");  // its own address is not known
}

TEST(TorchrunResolver, MastersOfEveryForm) {
  const auto first = [](const Variables& more) {
    return TorchrunResolver(view_of(with(kTorchrun, more)))
        .cluster_spec()
        .task_address("worker", 0);
  };
  EXPECT_EQ(first({{"MASTER_ADDR", "10.0.0.1"}}), "10.0.0.1:29500");
  EXPECT_EQ(first({{"MASTER_ADDR", "fd00::1"}}), "[fd00::1]:29500");
  EXPECT_EQ(first({{"MASTER_ADDR", "[fd00::1]"}}), "[fd00::1]:29500");
  EXPECT_EQ(first({{"MASTER_ADDR", "localhost"}}), "localhost:29500");
  EXPECT_EQ(first({{"LOCKSTEP_MASTER", "n7:1"}}), "n7:1");
  EXPECT_EQ(first({{"LOCKSTEP_MASTER", "unix:/run/x"}}), "unix:/run/x");
  EXPECT_EQ(first({{"TORCHELASTIC_USE_AGENT_STORE", "False"}}), "n0:29500");
  // The port is taken by torchrun itself.
  EXPECT_EQ(first({{"TORCHELASTIC_USE_AGENT_STORE", "True"}}), "n0:29501");
  EXPECT_THAT(wrong<TorchrunResolver>(with(
                  kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"MASTER_PORT", "65535"}})),
              AllOf(HasSubstr("MASTER_PORT"), HasSubstr("port after it")));
}

TEST(TorchrunResolver, VariablesAreChecked) {
  const auto with_wrong = [](const std::string& name, const std::string& value) {
    return wrong<TorchrunResolver>(with(kTorchrun, {{name, value}}));
  };
  EXPECT_THAT(with_wrong("RANK", "3"), AllOf(HasSubstr("RANK, byte 0"), HasSubstr("0 to 2")));
  EXPECT_THAT(with_wrong("RANK", "1x"), HasSubstr("RANK, byte 1"));
  EXPECT_THAT(with_wrong("RANK", ""), HasSubstr("at the end of ``"));
  EXPECT_THAT(with_wrong("WORLD_SIZE", "0"), HasSubstr("1 to 65536"));
  EXPECT_THAT(with_wrong("WORLD_SIZE", "4000000000"), HasSubstr("1 to 65536"));
  EXPECT_THAT(with_wrong("LOCAL_WORLD_SIZE", "4"), HasSubstr("LOCAL_WORLD_SIZE"));
  EXPECT_THAT(with_wrong("MASTER_PORT", "65536"), HasSubstr("1 to 65535"));
  EXPECT_THAT(with_wrong("MASTER_ADDR", "n 0"),
              AllOf(HasSubstr("MASTER_ADDR"), HasSubstr("space")));
  EXPECT_THAT(with_wrong("MASTER_ADDR", ""), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(with_wrong("LOCKSTEP_MASTER", "n0"),
              AllOf(HasSubstr("LOCKSTEP_MASTER"), HasSubstr("port is missing")));
  EXPECT_THAT(wrong<TorchrunResolver>(without(kTorchrun, "MASTER_PORT")),
              HasSubstr("MASTER_PORT is not set"));
  EXPECT_THAT(wrong<TorchrunResolver>(without(kTorchrun, "MASTER_ADDR")),
              AllOf(HasSubstr("MASTER_ADDR is not set"), HasSubstr("WORLD_SIZE=3")));
  EXPECT_THAT(wrong<TorchrunResolver>(without(kTorchrun, "RANK")),
              HasSubstr("start with torchrun"));
}

TEST(TorchrunResolver, AMasterThatOtherHostsCannotReach) {
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3", "::1", "LOCALHOST"}) {
    EXPECT_THAT(wrong<TorchrunResolver>(
                    with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", host}})),
                AllOf(HasSubstr("MASTER_ADDR"), HasSubstr(host), HasSubstr("all hosts reach")));
  }
}

/// torchrun --standalone calls the master by the machine's name.
TEST(TorchrunResolver, OnOneHostThePortIsANameOnly) {
  const auto meeting = [](const Variables& variables) {
    return TorchrunResolver(view_of(variables)).meeting();
  };
  EXPECT_EQ(meeting(kTorchrun), "29500");
  EXPECT_EQ(meeting(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})), "29501");
  EXPECT_EQ(meeting(with(kTorchrun, {{"LOCKSTEP_MASTER", "unix:/run/x"}})), "");
  EXPECT_EQ(meeting(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2"}})), "");
  EXPECT_EQ(meeting(without(kTorchrun, "LOCAL_WORLD_SIZE")), "");
}

TEST(TorchrunResolver, OneProcessNeedsNoMaster) {
  const TorchrunResolver resolver(view_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"worker", {""}}}));
}

TEST(OpenMpiResolver, OnOneHostRanksMeetUnderTheJobsName) {
  const OpenMpiResolver resolver(view_of(with(kOpenMpi, {{"PMIX_NAMESPACE", "prte@vm-7@1"}})));
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"worker", {"", ""}}}));
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.source(), "Open MPI");
  EXPECT_EQ(resolver.meeting(), "openmpi-prte_vm-7_1");
  const OpenMpiResolver other(view_of(
      with(kOpenMpi,
           {{"PMIX_NAMESPACE", "prte@vm-7@1"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_ID", "0"}})));
  EXPECT_EQ(other.meeting(), resolver.meeting());
  const OpenMpiResolver long_name(
      view_of(with(kOpenMpi, {{"PMIX_NAMESPACE", std::string(999, 'x')}})));
  EXPECT_LE(long_name.meeting().size(), 80U);
}

TEST(OpenMpiResolver, Mpich) {
  const OpenMpiResolver resolver(view_of(kMpich));
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"worker", {"", ""}}}));
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.source(), "MPICH");
  EXPECT_EQ(resolver.meeting(), "mpich-parent-" + std::to_string(getppid()));
  EXPECT_EQ(OpenMpiResolver(view_of(with(kMpich, {{"PMI_JOBID", "55"}}))).meeting(), "mpich-55");
  // PMI_ID is another name of the rank.
  EXPECT_EQ(OpenMpiResolver(view_of(with(kMpich, {{"PMI_ID", "1"}}))).meeting(),
            resolver.meeting());
}

TEST(OpenMpiResolver, AMasterIsUsed) {
  const ClusterSpec behind{{"worker", {"n0:4000", ""}}};
  for (const Variables& master : {Variables{{"LOCKSTEP_MASTER", "n0:4000"}},
                                  Variables{{"MASTER_ADDR", "n0"}, {"MASTER_PORT", "4000"}}}) {
    for (const Variables& launcher : {kOpenMpi, kMpich}) {
      const OpenMpiResolver resolver(view_of(with(launcher, master)));
      EXPECT_EQ(resolver.cluster_spec(), behind);
      EXPECT_EQ(resolver.meeting(), "4000");  // all are on this host
    }
  }
}

TEST(OpenMpiResolver, RanksOfSeveralHostsMeetAtTheMaster) {
  const Variables master = {{"LOCKSTEP_MASTER", "n0:4000"}};
  for (const Variables& launcher : {with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}),
                                    without(kMpich, "MPI_LOCALNRANKS")}) {
    EXPECT_EQ(OpenMpiResolver(view_of(with(launcher, master))).meeting(), "");
  }
}

TEST(OpenMpiResolver, SeveralHostsNeedAMaster) {
  EXPECT_THAT(wrong<OpenMpiResolver>(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}})),
              AllOf(HasSubstr("Open MPI started 2 ranks (1 on this host)"),
                    HasSubstr("set LOCKSTEP_MASTER=host:port")));
  EXPECT_THAT(
      wrong<OpenMpiResolver>(without(kMpich, "MPI_LOCALNRANKS")),
      AllOf(HasSubstr("MPICH started 2 ranks (unknown how many"), HasSubstr("LOCKSTEP_MASTER")));
  EXPECT_THAT(wrong<OpenMpiResolver>(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                                                     {"LOCKSTEP_MASTER", "localhost:1"}})),
              HasSubstr("all hosts reach"));
  const OpenMpiResolver alone(view_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}));
  EXPECT_EQ(alone.meeting(), "");
}

TEST(OpenMpiResolver, VariablesAreChecked) {
  EXPECT_THAT(wrong<OpenMpiResolver>({}), HasSubstr("start with mpirun"));
  EXPECT_THAT(wrong<OpenMpiResolver>(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE")),
              HasSubstr("OMPI_COMM_WORLD_SIZE is not set"));
  EXPECT_THAT(wrong<OpenMpiResolver>(without(kMpich, "PMI_RANK")),
              HasSubstr("PMI_RANK is not set"));
  EXPECT_THAT(wrong<OpenMpiResolver>(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "2"}})),
              AllOf(HasSubstr("OMPI_COMM_WORLD_RANK"), HasSubstr("0 to 1")));
}

}  // namespace
}  // namespace lockstep
