// Steps of a distributed dataset as numbers, and two replicas to take them.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/input/helpers.h"
#include "tests/input/workers.h"

namespace lockstep::testing {

using Step = std::vector<Rows>;  // one list of numbers a replica

inline Step step_of(const PerReplica<Tensor>& batch) {
  Step step;
  for (int i = 0; i < batch.size(); ++i) step.push_back(numbers_of(batch[i]));
  return step;
}

inline std::vector<Step> steps_of(const DistributedDataset<Tensor>& dataset) {
  std::vector<Step> steps;
  for (const auto& batch : dataset) steps.push_back(step_of(batch));
  return steps;
}

/// What every worker sees, by worker.
template <class Make>
std::vector<std::vector<Step>> seen_by(int workers, int replicas, const Make& distribute) {
  std::vector<std::vector<Step>> seen(static_cast<std::size_t>(workers));
  on_workers(workers, replicas, [&](Strategy& strategy, const InputWorkers& place) {
    seen[static_cast<std::size_t>(place.index)] =
        steps_of(distribute(strategy, InputOptions{.workers = place}));
  });
  return seen;
}

class TwoReplicas : public ::testing::Test {
 protected:
  MirroredStrategy strategy{on_cpus(2)};
};

}  // namespace lockstep::testing
