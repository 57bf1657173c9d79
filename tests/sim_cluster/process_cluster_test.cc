// Whole processes in virtual time: see process_cluster.h.
#include "tests/sim_cluster/process_cluster.h"

#include <gtest/gtest.h>

#include "lockstep/log.h"
#include "tests/sim_cluster/large_job.h"

namespace lockstep::simulated {
namespace {

class SimProcesses : public testing::Test {
 protected:
  SimProcesses() { set_log_level(LogLevel::off); }
  ~SimProcesses() override { set_log_level(LogLevel::warning); }
};

TEST_F(SimProcesses, ThreeHundredSchedules) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const ProcessSchedule schedule = make_process_schedule(seed);
    const Outcome outcome = run(schedule);
    EXPECT_EQ(outcome.problem, "")
        << "seed=" << seed << ", " << describe(schedule) << "\nagain: make sim SEED=" << seed;
  }
}

TEST_F(SimProcesses, TheSameSeedIsTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const ProcessSchedule schedule = make_process_schedule(seed);
    EXPECT_EQ(describe(schedule), describe(make_process_schedule(seed)));
    const Outcome one = run(schedule);
    const Outcome other = run(schedule);
    EXPECT_EQ(one.simulated, other.simulated) << "seed=" << seed;
    EXPECT_EQ(one.operations, other.operations) << "seed=" << seed;
  }
}

TEST_F(SimProcesses, SixtyFourRanksJoinReduceLoseOneAndLeave) {
  EXPECT_EQ(large_job({.ranks = 64}).problem, "");
}

/// More than a listener lets in of one address at a time, and more than it lets in at all.
TEST_F(SimProcesses, AHundredCallersOfOneAddressJoin) {
  EXPECT_EQ(large_job({.ranks = 100, .addresses = Addresses::one_for_all}).problem, "");
}

TEST_F(SimProcesses, AHundredCallersOfOneAddressJoinWithAKey) {
  EXPECT_EQ(
      large_job({.ranks = 100, .key = Key::given, .addresses = Addresses::one_for_all}).problem,
      "");
}

}  // namespace
}  // namespace lockstep::simulated
