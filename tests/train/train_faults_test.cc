// A worker that dies, stops or throws in the middle of training: every survivor's run() throws, in
// time, and names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "tests/processes/fault_checks.h"

namespace lockstep::processes {
namespace {

using ::testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(60);

struct Fault {
  std::string what;
  Wire wire = Wire::local;
  int workers = 3;
  int replicas = 1;
  std::string words = {};
};

/// Runs a cluster in which one worker does this at a random step; gives what everybody said.
std::vector<Outcome> run_with(const Fault& fault, int victim) {
  std::mt19937 random(std::random_device{}());
  const auto step = 1 + random() % 40;
  std::cout << fault.what << " of worker " << victim << " at step " << step << std::endl;
  ClusterOptions options;
  options.ranks = fault.workers;
  options.wire = fault.wire;
  options.program = LOCKSTEP_TRAIN_WORKER;
  options.scenario = "model=small steps=1000000 replicas=" + std::to_string(fault.replicas) +
                     " fault=" + fault.what + " at=" + std::to_string(step) +
                     " worker=" + std::to_string(victim) + " " + fault.words;
  ProcessCluster cluster(options);
  EXPECT_TRUE(cluster.wait_for(victim, "fault at=", kPatience)) << cluster.text(victim);
  for (int rank = 0; rank < fault.workers; ++rank) {
    if (rank == victim) continue;
    EXPECT_TRUE(cluster.wait_for(rank, "closed after", kPatience)) << rank;
  }
  if (fault.what == "stop") {
    EXPECT_TRUE(cluster.process(victim).signal(sys::Signal::kill).ok());
  }
  return cluster.finish(kPatience);
}

void expect_named(const Fault& fault, int victim, std::chrono::milliseconds bound) {
  const auto outcomes = run_with(fault, victim);
  expect_verdicts(outcomes, {victim}, {"PeerLost", {victim}});
  const auto at = number_after(outcomes[static_cast<std::size_t>(victim)].text, "fault at=");
  ASSERT_TRUE(at.has_value());
  expect_in_time(outcomes, {victim}, *at, bound);
}

TEST(TrainFaults, AKilledWorkerIsNamed) {
  expect_named({.what = "kill"}, 1, std::chrono::milliseconds(50));
}

TEST(TrainFaults, AKilledChiefIsNamed) {
  expect_named({.what = "kill"}, 0, std::chrono::milliseconds(50));
}

TEST(TrainFaults, AKilledWorkerOfSeveralReplicasIsNamed) {
  expect_named({.what = "kill", .workers = 2, .replicas = 2}, 1, std::chrono::milliseconds(50));
}

TEST(TrainFaults, AKilledWorkerOfAnotherHostIsNamed) {
  expect_named({.what = "kill", .wire = Wire::tls}, 2, std::chrono::milliseconds(100));
}

/// Every lane of the survivors waits for it over a connection of its own.
TEST(TrainFaults, AKilledWorkerOfAnotherHostIsNamedByAllLanes) {
  expect_named({.what = "kill", .wire = Wire::tcp, .replicas = 2, .words = "afterwards"}, 1,
               std::chrono::milliseconds(100));
}

TEST(TrainFaults, AStoppedWorkerIsNamed) {
  expect_named({.what = "stop"}, 1, std::chrono::milliseconds(3200));
}

TEST(TrainFaults, AStoppedWorkerOfAnotherHostIsNamed) {
  expect_named({.what = "stop", .wire = Wire::tls}, 1, std::chrono::milliseconds(3200));
}

TEST(TrainFaults, AnExceptionKeepsItsTypeAtHomeAndIsPeerLostElsewhere) {
  const Fault fault{.what = "throw"};
  const auto outcomes = run_with(fault, 1);
  EXPECT_TRUE(outcomes[1].exited_with(4)) << outcomes[1].text;
  EXPECT_THAT(outcomes[1].text, HasSubstr("threw out_of_range: a step of mine went wrong"));
  expect_verdicts(outcomes, {1}, {"PeerLost", {1}});
  for (const int survivor : {0, 2}) {
    EXPECT_THAT(outcomes[static_cast<std::size_t>(survivor)].text,
                HasSubstr("a step of mine went wrong"));
  }
}

}  // namespace
}  // namespace lockstep::processes
