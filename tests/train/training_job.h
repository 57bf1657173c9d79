// A training job whose weights are a function of its options alone: same bits in every layout.
//
// The data of a step are numbers drawn from (step, global replica), so that a replica sees the same
// rows wherever it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/lockstep.h"

namespace lockstep::training {

struct Job {
  std::string model = "mlp";      // 784-512-512-10; small (784-64-10), cnn (with dropout)
  std::string optimizer = "sgd";  // with momentum; or adam
  int steps = 100;
  std::int64_t rows = 8;  // of each replica and step
  GradientOptions gradients = {};
};

/// Called on each replica before it computes step `step`.
using BeforeStep = std::function<void(ReplicaContext& replica, int step)>;

/// Trains, and gives a digest of the weights, which all replicas have compared.
std::uint64_t train(Strategy& strategy, const Job& job, const BeforeStep& before = {});

}  // namespace lockstep::training
