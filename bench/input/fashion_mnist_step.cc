#include "bench/input/fashion_mnist_step.h"

#include <torch/torch.h>

#include <utility>
#include <vector>

#include "examples/fashion_mnist/net.h"
#include "lockstep/lockstep.h"

namespace lockstep::bench {

namespace {

using fashion_mnist::Net;

constexpr double kRate = 0.05;
constexpr double kMomentum = 0.9;

MirroredOptions two_replicas() {
  MirroredOptions options;
  options.devices = {"CPU:0", "CPU:1"};
  return options;
}

}  // namespace

struct FashionMnistStep::State {
  MirroredStrategy strategy{two_replicas()};
  Model<Net> net = strategy.create<Net>();
  PerReplica<Tensor> images;
  PerReplica<Tensor> labels;
  std::int64_t rows;
  std::vector<Variable> velocities;

  State(const Tensor& all_images, const Tensor& all_labels)
      : images(halves(all_images)), labels(halves(all_labels)), rows(all_images.size(0)) {
    const auto scope = strategy.scope();
    for (const Variable& w : net.variables()) {
      const auto beside = strategy.colocate_vars_with(w);
      velocities.push_back(variable(w.name() + "/velocity", torch::zeros(w.shape())));
    }
  }

  PerReplica<Tensor> halves(const Tensor& whole) {
    return strategy.distribute_values_from_function([&](const ValueContext& context) {
      return whole.chunk(2)[static_cast<std::size_t>(context.replica_id_in_sync_group)].clone();
    });
  }

  void apply(Strategy& s, const std::vector<PerReplica<Tensor>>& gradients) {
    const auto& weights = net.variables();
    std::vector<std::pair<PerReplica<Tensor>, Variable>> pairs;
    for (std::size_t i = 0; i < gradients.size(); ++i) pairs.emplace_back(gradients[i], weights[i]);
    s.batch_update(
        weights,
        [](Tensor w, Tensor velocity, const Tensor& gradient) {
          velocity.mul_(kMomentum).add_(gradient);
          w.sub_(velocity, kRate);
        },
        velocities, s.batch_reduce_to(ReduceOp::sum, pairs));
  }
};

FashionMnistStep::FashionMnistStep(const Tensor& images, const Tensor& labels)
    : state_(std::make_unique<State>(images, labels)) {}
FashionMnistStep::~FashionMnistStep() = default;

void FashionMnistStep::steps(int count) {
  State& state = *state_;
  const auto scope = state.strategy.scope();
  for (int i = 0; i < count; ++i) {
    state.strategy.run(
        RunOptions{.execution = {}, .global_batch_size = state.rows},
        [&state](ReplicaContext& replica, Net& own, const Tensor& x, const Tensor& y) {
          own->train();
          const Tensor sum = torch::cross_entropy_loss(own(x), y, {}, torch::Reduction::Sum);
          const auto gradients =
              torch::autograd::grad({sum / replica.global_batch_size()}, own->parameters());
          replica.merge_call(
              [&state](Strategy& s, const std::vector<PerReplica<Tensor>>& all) {
                state.apply(s, all);
              },
              gradients);
          return sum.detach() / replica.global_batch_size();
        },
        state.net, state.images, state.labels);
  }
}

}  // namespace lockstep::bench
