// An optimizer by hand: momentum whose early steps are corrected for its start at zero. It has a
// velocity for each weight (a slot, beside the weight), and a power of the momentum for the whole
// (a non-slot variable). One worker or several:
//
//   lockstep launch -n 2 -- ./momentum
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>
#include <utility>
#include <vector>

namespace ls = lockstep;
using torch::Tensor;

class Momentum {
 public:
  Momentum(ls::Strategy& strategy, std::vector<ls::Variable> weights, double rate)
      : weights_(std::move(weights)),
        power_(strategy.non_slot_variable("power", torch::ones({}), weights_)),
        rate_(rate) {
    for (const ls::Variable& w : weights_) {
      const auto beside = strategy.colocate_vars_with(w);
      velocities_.push_back(ls::variable(w.name() + "/velocity", torch::zeros(w.shape())));
    }
  }

  // In a step function: one call for all replicas of a worker, with the gradients of all.
  void apply(ls::ReplicaContext& replica, const std::vector<Tensor>& gradients) {
    replica.merge_call(
        [this](ls::Strategy& strategy, const std::vector<ls::PerReplica<Tensor>>& all) {
          std::vector<std::pair<ls::PerReplica<Tensor>, ls::Variable>> pairs;
          for (std::size_t i = 0; i < all.size(); ++i) pairs.emplace_back(all[i], weights_[i]);
          const auto sums = strategy.batch_reduce_to(ls::ReduceOp::sum, pairs);

          strategy.update_non_slot(
              strategy.non_slot_devices(weights_), [](Tensor power) { power.mul_(kMomentum); },
              power_);
          const double rate = rate_ / (1 - power_.read().item<double>());
          strategy.batch_update(
              weights_,
              [rate](Tensor w, Tensor velocity, const Tensor& gradient) {  // once for each copy
                velocity.mul_(kMomentum).add_(gradient, 1 - kMomentum);
                w.sub_(velocity, rate);
              },
              velocities_, sums);
        },
        gradients);
  }

 private:
  static constexpr double kMomentum = 0.9;
  std::vector<ls::Variable> weights_;
  std::vector<ls::Variable> velocities_;
  ls::NonSlotVariable power_;
  double rate_;
};

int main(int, char** argv) try {
  // Re-executes the program with faster kernels if OpenBLAS does not know this processor.
  ls::choose_blas_kernels(argv);
  ls::MultiWorkerMirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});  // of each worker
  const auto scope = strategy.scope();
  const auto w = ls::variable("w", 0.0, {.trainable = true});
  const auto b = ls::variable("b", 0.0, {.trainable = true});
  Momentum momentum(strategy, {w, b}, 0.1);

  // y = 3 x + 1; even replicas have x = 1, 2, odd ones x = -1, -2.
  for (int step = 1; step <= 200; ++step) {
    strategy.run([&](ls::ReplicaContext& replica) {
      const double sign = replica.replica_id_in_sync_group() % 2 == 0 ? 1 : -1;
      const Tensor x = torch::tensor({1.0F, 2.0F}) * sign;
      const int rows = 2 * replica.num_replicas_in_sync();
      const Tensor loss = (w * x + b - (3 * x + 1)).square().sum() / rows;
      momentum.apply(replica, torch::autograd::grad({loss}, {w.read(), b.read()}));
    });
    if (strategy.is_chief() && (step == 1 || step == 200)) {
      std::printf("step %3d  w = %.3f, b = %.3f\n", step, w.read().item<double>(),
                  b.read().item<double>());
    }
  }
} catch (const ls::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
