// Joining as users start programs: TF_CONFIG typed into shells, and the variables that mpirun,
// mpiexec, srun and torchrun set. No launcher of ours, and nothing of lockstep's in the
// environment.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "sys/host_identity.h"
#include "sys/posix_net.h"
#include "tests/processes/cluster.h"
#include "tests/processes/verdict.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Nothing of what a test cluster is told by default.
const std::vector<std::string> kNothingOfOurs = {"LOCKSTEP_RANK=", "LOCKSTEP_ADDRESSES="};

std::string tf_config(const std::vector<int>& ports, int index,
                      const std::string& host = "localhost") {
  std::string workers;
  for (const int port : ports) {
    workers += fmt::format("{}\"{}:{}\"", workers.empty() ? "" : ", ", host, port);
  }
  return fmt::format(
      R"(TF_CONFIG={{"cluster": {{"worker": [{}]}}, "task": {{"type": "worker", "index": {}}}}})",
      workers, index);
}

ClusterOptions with_tf_config(const std::vector<int>& ports, const std::string& scenario,
                              const std::string& host = "localhost") {
  ClusterOptions options{
      .ranks = static_cast<int>(ports.size()), .scenario = scenario, .environment = kNothingOfOurs};
  for (int rank = 0; rank < options.ranks; ++rank) {
    options.environment_of[rank] = {tf_config(ports, rank, host)};
  }
  return options;
}

void expect_all_joined(const ClusterOptions& options) {
  ProcessCluster cluster(options);
  const auto outcomes = cluster.finish(20s);
  for (int rank = 0; rank < options.ranks; ++rank) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(outcome.ok()) << outcome.how() << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(fmt::format("joined rank {} of {} by shared memory", rank,
                                                    options.ranks)));
  }
}

std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    files.push_back(entry.path().string());
  }
  return files;
}

TEST(TfConfig, OfLocalhostNeedsNoLauncher) {
  expect_all_joined(with_tf_config(free_ports(3), "exercise own"));
}

/// The ports are names only: none is opened.
TEST(TfConfig, OfLocalhostWorksWhereThePortsAreTaken) {
  sys::PosixNetwork network;
  const auto listener = network.listen("127.0.0.1:0");
  const std::string address = listener->address();
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  expect_all_joined(with_tf_config({port, free_ports(1)[0]}, "work 0.1 10"));
}

/// Nothing is opened to the network, so no key is needed; whether the name resolves is no matter.
TEST(TfConfig, OfTheMachinesOwnNameNeedsNoKeyAndNoPorts) {
  sys::PosixNetwork network;
  const auto listener = network.listen("0.0.0.0:0");
  const std::string address = listener->address();
  const int taken = std::stoi(address.substr(address.rfind(':') + 1));
  expect_all_joined(with_tf_config({taken, free_ports(1)[0]}, "exercise own", sys::host_name()));
}

TEST(TfConfig, OfAnotherClusterIsRefusedWithBothValues) {
  const std::vector<int> ports = free_ports(3);
  ClusterOptions options = with_tf_config({ports[0], ports[1]}, "work 0.1 10");
  options.environment.emplace_back("TEST_JOIN_MS=1500");
  options.environment_of[1] = {tf_config({ports[0], ports[2]}, 1)};
  ProcessCluster cluster(options);
  const auto outcomes = cluster.finish(20s);
  const auto zero = verdict_in(outcomes[0].text);
  const auto one = verdict_in(outcomes[1].text);
  ASSERT_TRUE(zero && one) << outcomes[0].text << outcomes[1].text;
  EXPECT_EQ(one->kind, "ConfigError");
  EXPECT_THAT(one->message,
              HasSubstr(fmt::format("rank 0 was given \"address of rank 1: localhost:{}\", this "
                                    "rank \"address of rank 1: localhost:{}\"",
                                    ports[1], ports[2])));
  EXPECT_EQ(zero->kind, "Timeout");
  EXPECT_THAT(zero->message, AllOf(HasSubstr("other addresses"), HasSubstr("rank 1")));
}

/// All ranks of a host, or one that is still joining: nobody is left to clean up after them.
TEST(TfConfig, NothingIsLeftBehindByRanksThatAreKilled) {
  const std::vector<int> ports = free_ports(2);
  ProcessCluster cluster(with_tf_config(ports, "work 20 10"));
  ASSERT_TRUE(cluster.wait_for_all("working", 20s)) << cluster.text(0) << cluster.text(1);
  for (const int rank : {0, 1}) {
    (void)cluster.process(rank).signal(sys::Signal::kill);
    ASSERT_TRUE(cluster.process(rank).wait(Deadline::after(5s)).has_value());
  }
  EXPECT_THAT(files_in(cluster.directory()), testing::IsEmpty());
  // And the next ones find the place free.
  for (const int rank : {0, 1}) cluster.start(rank);
  EXPECT_TRUE(cluster.wait_for_all("working", 20s)) << cluster.text(0) << cluster.text(1);
}

/// Exactly what the launcher sets that matters, for each of the ranks.
ClusterOptions under(const std::vector<std::string>& for_all,
                     const std::vector<std::string>& rank_names) {
  ClusterOptions options{.ranks = 3, .scenario = "exercise own", .environment = kNothingOfOurs};
  options.environment.insert(options.environment.end(), for_all.begin(), for_all.end());
  for (int rank = 0; rank < options.ranks; ++rank) {
    for (const std::string& name : rank_names) {
      options.environment_of[rank].push_back(fmt::format("{}={}", name, rank));
    }
  }
  return options;
}

TEST(Mpirun, OfOpenMpi) {
  expect_all_joined(under({"OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_LOCAL_SIZE=3",
                           fmt::format("PMIX_NAMESPACE=prterun-test-{}@1", ::getpid())},
                          {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_RANK"}));
}

TEST(Mpirun, OfMpich) {
  expect_all_joined(under({"PMI_SIZE=3", "MPI_LOCALNRANKS=3"}, {"PMI_RANK", "MPI_LOCALRANKID"}));
}

/// A rank that is started through a shell has another parent than the others. Hydra's process on
/// this host is their common one; here it is a script of that name.
TEST(Mpirun, OfMpichBehindAShell) {
  TemporaryDirectory directory;
  const std::string hydra = directory.path() + "/hydra_pmi_proxy";
  std::ofstream(hydra)
      << "#!/bin/sh\n"
         "for rank in 0 1 2; do\n"
         "  PMI_RANK=$rank MPI_LOCALRANKID=$rank sh -c '\"$0\" \"$@\"; exit $?' \"$@\" &\n"
         "done\n"
         "wait\n";
  ASSERT_EQ(::chmod(hydra.c_str(), 0700), 0);
  ClusterOptions options{
      .ranks = 1, .scenario = "exercise own", .environment = kNothingOfOurs, .wrappers = {{hydra}}};
  options.environment.insert(options.environment.end(),
                             {"PMI_SIZE=3", "MPI_LOCALNRANKS=3", "TEST_JOIN_MS=8000"});
  ProcessCluster cluster(options);
  const auto outcomes = cluster.finish(20s);
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(outcomes[0].text,
                HasSubstr(fmt::format("joined rank {} of 3 by shared memory", rank)));
  }
}

/// What srun -N 1 -n 3 sets. Two steps of a job may run beside each other.
TEST(Srun, OnOneNodeNeedsNoKeyAndNoPorts) {
  std::vector<ClusterOptions> steps;
  for (const int step : {0, 1}) {
    steps.push_back(under(
        {fmt::format("SLURM_JOB_ID={}", ::getpid()), fmt::format("SLURM_STEP_ID={}", step),
         "SLURM_NTASKS=3", "SLURM_NNODES=1", "SLURM_JOB_NODELIST=node7", "SLURM_NODELIST=node7",
         "SLURM_TASKS_PER_NODE=3", "SLURM_STEP_NUM_TASKS=3", "SLURM_STEP_NUM_NODES=1",
         "SLURM_STEP_NODELIST=node7", "SLURM_STEP_TASKS_PER_NODE=3", "SLURMD_NODENAME=node7"},
        {"SLURM_PROCID", "SLURM_LOCALID"}));
  }
  steps[1].scenario = "work 20 10";
  ProcessCluster beside(steps[1]);
  ASSERT_TRUE(beside.wait_for_all("working", 20s)) << beside.text(0) << beside.text(1);
  expect_all_joined(steps[0]);
}

/// A step that does not say which it is: the node's name is this machine's.
TEST(Srun, OnThisMachineByItsName) {
  const std::string own = sys::host_name();
  expect_all_joined(
      under({"SLURM_STEP_NUM_TASKS=3", "SLURM_STEP_NODELIST=" + own, "SLURM_STEP_TASKS_PER_NODE=3"},
            {"SLURM_PROCID"}));
}

/// Its agent holds MASTER_PORT itself.
TEST(Torchrun, BesideItsStore) {
  sys::PosixNetwork network;
  const auto store = network.listen("127.0.0.1:0");
  const std::string address = store->address();
  expect_all_joined(
      under({"WORLD_SIZE=3", "LOCAL_WORLD_SIZE=3", "GROUP_RANK=0", "MASTER_ADDR=127.0.0.1",
             "MASTER_PORT=" + address.substr(address.rfind(':') + 1),
             "TORCHELASTIC_USE_AGENT_STORE=True"},
            {"RANK", "LOCAL_RANK"}));
}

/// As torchrun --standalone calls the master; the name leads nowhere.
TEST(Torchrun, OnOneHostByTheMachinesName) {
  expect_all_joined(
      under({"WORLD_SIZE=3", "LOCAL_WORLD_SIZE=3", "GROUP_RANK=0", "MASTER_ADDR=node7.invalid",
             fmt::format("MASTER_PORT={}", free_ports(1)[0])},
            {"RANK", "LOCAL_RANK"}));
}

/// As with a master that is a machine's name: encrypted, every rank with a port of its own.
TEST(Torchrun, BetweenHosts) {
  ClusterOptions options = under(
      {"WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", free_ports(1)[0]),
       "LOCAL_RANK=0", fmt::format("LOCKSTEP_KEY={}", kTestKey)},
      {"RANK", "GROUP_RANK"});
  options.hosts = {"a", "b", "c"};
  ProcessCluster cluster(options);
  for (const Outcome& outcome : cluster.finish(30s)) {
    EXPECT_TRUE(outcome.ok()) << outcome.how() << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("by tls"), Not(HasSubstr("shared memory"))));
  }
}

}  // namespace
}  // namespace lockstep::processes
