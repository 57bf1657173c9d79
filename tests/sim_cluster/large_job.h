// LargeJob: one job of many simulated processes, to see what it costs. All join, reduce and leave; then
// they join again, reduce, and lose a rank.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "tests/sim_cluster/job_process.h"
#include "tests/sim_cluster/traffic.h"

namespace lockstep::simulated {

/// One part of a job, from its beginning until it is over on all ranks.
struct JobPhase {
  std::string name;
  Duration took{};  // virtual
  double real_seconds{};
  Traffic rank0;  // in this phase
};

struct LargeJobReport {
  std::string problem;  // empty: as it should be
  std::vector<JobPhase> phases;
};

LargeJobReport large_job(const JobSpec& spec);

/// Prints the report. 0 if all was as it should be.
int run_large_job(int ranks);

}  // namespace lockstep::simulated
