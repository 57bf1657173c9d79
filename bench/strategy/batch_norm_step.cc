#include "bench/strategy/batch_norm_step.h"

// clang-format off
#include <ATen/core/ivalue.h>  // before libtorch's own
// clang-format on
#include <torch/torch.h>

#include <vector>

#include "bench/strategy/two_threads.h"
#include "lockstep/lockstep.h"

namespace lockstep::bench {

namespace {

constexpr int kReplicas = 2;
constexpr int kChannels = 32;

Tensor rows() { return torch::randn({64 / kReplicas, kChannels, 28, 28}); }

template <class Norm>
void step(Norm& norm, const Tensor& x, const Tensor& gradient) {
  const Tensor y = norm->forward(x);
  torch::autograd::grad({y}, {x, norm->weight, norm->bias}, {gradient});
}

class Synchronized : public Trainer {
 public:
  void steps(int count) override {
    for (int i = 0; i < count; ++i) {
      strategy_.run(step<SyncBatchNorm2d>, norm_, x_, gradient_);
    }
  }

 private:
  // Pinned as the threads that it is measured beside.
  MirroredStrategy strategy_{{.devices = {"CPU:0", "CPU:1"}, .replicas = {.pin = true}}};
  Model<SyncBatchNorm2d> norm_ = strategy_.create<SyncBatchNorm2d>(kChannels);
  PerReplica<Tensor> x_ = strategy_.distribute_values_from_function(
      [](const ValueContext&) { return rows().requires_grad_(); });
  PerReplica<Tensor> gradient_ =
      strategy_.distribute_values_from_function([](const ValueContext&) { return rows(); });
};

class Unconnected : public Trainer {
 public:
  void steps(int count) override {
    threads_.run([&](int index) {
      Half& half = halves_[static_cast<std::size_t>(index)];
      for (int i = 0; i < count; ++i) step(half.norm, half.x, half.gradient);
    });
  }

 private:
  struct Half {
    torch::nn::BatchNorm2d norm{kChannels};
    Tensor x = rows().requires_grad_();
    Tensor gradient = rows();
  };
  std::vector<Half> halves_{kReplicas};
  TwoThreads threads_;
};

}  // namespace

std::unique_ptr<Trainer> synchronized_batch_norm() { return std::make_unique<Synchronized>(); }

std::unique_ptr<Trainer> unconnected_batch_norm() { return std::make_unique<Unconnected>(); }

}  // namespace lockstep::bench
