// Several workers in one test: threads, each with a strategy of its own, that add up numbers
// through a collective session, as processes would.
#pragma once

#include <functional>

#include "lockstep/coll.h"
#include "lockstep/lockstep.h"

namespace lockstep::testing {

inline MirroredOptions on_cpus(int count) {
  MirroredOptions options;
  for (int i = 0; i < count; ++i) options.devices.emplace_back("CPU:" + std::to_string(i));
  return options;
}

/// work(strategy, workers) on every worker at the same time; rethrows what one of them threw.
inline void on_workers(int count, int replicas,
                       const std::function<void(Strategy&, const InputWorkers&)>& work) {
  coll::run_ranks(count, [&](coll::Session& group) {
    MirroredStrategy strategy(on_cpus(replicas));
    const auto sum = [&group](std::span<std::int64_t> numbers) {
      group.all_reduce(Op::sum, numbers);
    };
    work(strategy, {count, group.rank(), sum});
  });
}

}  // namespace lockstep::testing
