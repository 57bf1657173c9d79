// A training step of a net on fixed data, in two forms: replicas of a strategy, and threads that
// know nothing of each other. Both do the same forward, backward and momentum update.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace lockstep::bench {

enum class NetKind { mlp, cnn };

/// Two replicas, or two unconnected threads, that can be told to do some steps.
class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual void steps(int count) = 0;
};

std::unique_ptr<Trainer> connected_trainer(NetKind kind);
std::unique_ptr<Trainer> unconnected_trainer(NetKind kind);

}  // namespace lockstep::bench
