// A cluster inside a unit test: several workers of a multi-worker strategy as threads of this
// process, over real collectives.
//
//   testing::run_workers({.workers = 2, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
//     const auto scope = strategy.scope();
//     EXPECT_EQ(strategy.num_replicas_in_sync(), 4);
//   });
//
// libtorch's default generator is one for the whole process, so the workers share it: give
// replicas.seed, and set initial values by hand or let the chief's count.
#pragma once

#include <functional>

#include "lockstep/multi_worker_mirrored_strategy.h"

namespace lockstep::testing {

struct TestCluster {
  int workers = 2;
  int replicas = 1;  // of each worker
  MultiWorkerOptions options = {};
  coll::SessionOptions session = {};
};

/// Runs fn once for each worker, each on a thread of its own with its strategy, and returns when
/// all have returned. The first exception is thrown here; the other workers' waits end with it.
void run_workers(const TestCluster& cluster,
                 const std::function<void(MultiWorkerMirroredStrategy&)>& fn);

}  // namespace lockstep::testing
