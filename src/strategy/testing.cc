#include "lockstep/testing.h"

#include <fmt/format.h>

#include "lockstep/coll/threads.h"

namespace lockstep::testing {

void run_workers(const TestCluster& cluster,
                 const std::function<void(MultiWorkerMirroredStrategy&)>& fn) {
  if (cluster.workers < 1 || cluster.replicas < 1) {
    throw InvalidUsage("run_workers: at least one worker and one replica are needed");
  }
  coll::SessionOptions session = cluster.session;
  session.replicas = cluster.replicas;
  coll::run_ranks(
      cluster.workers,
      [&](coll::Session& group) {
        MultiWorkerOptions options = cluster.options;
        options.session = std::make_shared<coll::Session>(std::move(group));
        // Cores are the test's to share out, not this worker's.
        options.replicas.pin = false;
        if (options.devices.empty()) {
          for (int i = 0; i < cluster.replicas; ++i) {
            options.devices.emplace_back(fmt::format("CPU:{}", i));
          }
        }
        MultiWorkerMirroredStrategy strategy(options);
        fn(strategy);
      },
      session);
}

}  // namespace lockstep::testing
