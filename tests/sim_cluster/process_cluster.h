// ProcessCluster: whole processes of a job in virtual time, on one thread. Each rank runs what a real
// process runs: it joins (Joiner), has a Session with its Executor, its pump, its subgroups and its
// control thread (Presence), opens data connections when it first needs them, and leaves. Only clock,
// threads and network are simulated.
//
//   const Outcome outcome = run(make_process_schedule(4711));
//   outcome.problem;                                  // empty: as it should be
#pragma once

#include "tests/sim_cluster/cluster.h"
#include "tests/sim_cluster/process_schedule.h"

namespace lockstep::simulated {

Outcome run(const ProcessSchedule& schedule, Trace trace = Trace::off);

}  // namespace lockstep::simulated
