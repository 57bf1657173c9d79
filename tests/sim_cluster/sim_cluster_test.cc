#include <gtest/gtest.h>

#include "lockstep/log.h"
#include "tests/sim_cluster/cluster.h"

namespace lockstep::simulated {
namespace {

class SimCluster : public testing::Test {
 protected:
  SimCluster() { set_log_level(LogLevel::off); }
  ~SimCluster() override { set_log_level(LogLevel::warning); }
};

TEST_F(SimCluster, ThreeHundredSchedules) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Schedule schedule = make_schedule(seed);
    const Outcome outcome = run(schedule);
    EXPECT_EQ(outcome.problem, "")
        << "seed=" << seed << ", " << describe(schedule) << "\nagain: make sim SEED=" << seed;
  }
}

TEST_F(SimCluster, TheSameSeedIsTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Schedule schedule = make_schedule(seed);
    EXPECT_EQ(describe(schedule), describe(make_schedule(seed)));
    const Outcome one = run(schedule);
    const Outcome other = run(schedule);
    EXPECT_EQ(one.simulated, other.simulated) << "seed=" << seed;
    EXPECT_EQ(one.operations, other.operations) << "seed=" << seed;
  }
}

/// Schedules of the fault with which the planted bug is found, of those where it strikes.
struct Found {
  int found = 0;
  int struck = 0;
};

Found plant(Planted planted, Fault fault) {
  Found result;
  for (std::uint64_t seed = 1; result.struck < 20; ++seed) {
    const Schedule schedule = make_schedule(seed);
    if (schedule.fault != fault || schedule.transport != Transport::stream) continue;
    if (planted == Planted::unchecked_requests &&
        schedule.other_tasks.size() != schedule.tasks.size()) {
      continue;
    }
    if (!run(schedule).noticed) continue;
    ++result.struck;
    if (!run(schedule, planted).problem.empty()) ++result.found;
  }
  return result;
}

TEST_F(SimCluster, AControlPlaneThatTellsNobodyIsFound) {
  EXPECT_GE(plant(Planted::swallowed_aborts, Fault::abort).found, 15);
}

/// Those who have not lost a connection themselves learn of it from the two who have.
TEST_F(SimCluster, BrokenConnectionsOfWhichNobodyTellsAreFound) {
  EXPECT_GE(plant(Planted::swallowed_aborts, Fault::cut).found, 10);
  EXPECT_GE(plant(Planted::swallowed_aborts, Fault::half_close).found, 10);
}

TEST_F(SimCluster, RequestsThatAreNotComparedAreFound) {
  EXPECT_GE(plant(Planted::unchecked_requests, Fault::mismatch).found, 5);
}

}  // namespace
}  // namespace lockstep::simulated
