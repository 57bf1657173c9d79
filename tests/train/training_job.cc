#include "tests/train/training_job.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

namespace lockstep::training {

namespace {

struct MlpImpl : torch::nn::Module {
  /// From the pixels on to the classes.
  explicit MlpImpl(const std::vector<std::int64_t>& widths) {
    for (std::size_t i = 1; i < widths.size(); ++i) {
      if (i > 1) layers->push_back(torch::nn::ReLU());
      layers->push_back(torch::nn::Linear(widths[i - 1], widths[i]));
    }
    register_module("layers", layers);
  }
  Tensor forward(const Tensor& x) { return layers->forward(x.flatten(1)); }
  torch::nn::Sequential layers;
};
TORCH_MODULE(Mlp);

struct CnnImpl : torch::nn::Module {
  CnnImpl() {
    register_module("conv", conv);
    register_module("dropout", dropout);
    register_module("output", output);
  }
  Tensor forward(const Tensor& x) {
    const Tensor features = torch::max_pool2d(torch::relu(conv(x)), 4);
    return output(dropout(features.flatten(1)));
  }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 8, 3).padding(1)};
  torch::nn::Dropout dropout{0.25};
  torch::nn::Linear output{8 * 7 * 7, 10};
};
TORCH_MODULE(Cnn);

/// Initial values by name alone: constructors draw from the process's generator.
void set_initial(const std::vector<Variable>& variables) {
  std::uint64_t seed = 1;
  for (const Variable& variable : variables) {
    const at::Generator generator = at::detail::createCPUGenerator(seed++);
    variable.assign(torch::randn(variable.shape(), generator) * 0.05);
  }
}

template <class Net>
DistributedOptimizer optimizer_for(Strategy& strategy, const Job& job, const Model<Net>& net) {
  if (job.optimizer == "adam") {
    return strategy.optimizer<torch::optim::Adam>(net, torch::optim::AdamOptions(1e-3),
                                                  job.gradients);
  }
  return strategy.optimizer<torch::optim::SGD>(net, torch::optim::SGDOptions(0.05).momentum(0.9),
                                               job.gradients);
}

template <class Net, class... Args>
std::uint64_t train_net(Strategy& strategy, const Job& job, const BeforeStep& before,
                        const Args&... args) {
  const auto scope = strategy.scope();
  const auto net = strategy.create<Net>(args...);
  set_initial(net.variables());
  const DistributedOptimizer optimizer = optimizer_for(strategy, job, net);
  for (int step = 0; step < job.steps; ++step) {
    strategy.run(
        [&](ReplicaContext& replica, Net& own, Optimizer& opt) {
          if (before) before(replica, step);
          const int id = replica.replica_id_in_sync_group();
          const at::Generator generator =
              at::detail::createCPUGenerator(static_cast<std::uint64_t>(step * 1000 + id));
          const Tensor x = torch::randn({job.rows, 1, 28, 28}, generator);
          const Tensor y = torch::randint(0, 10, {job.rows}, generator, torch::kLong);
          const Tensor sum =
              torch::cross_entropy_loss(own->forward(x), y, {}, torch::Reduction::Sum);
          (sum / (job.rows * replica.num_replicas_in_sync())).backward();
          opt.apply(replica);
        },
        net, optimizer);
  }
  optimizer.check_parameters();
  return net.digest();
}

}  // namespace

std::uint64_t train(Strategy& strategy, const Job& job, const BeforeStep& before) {
  using Widths = std::vector<std::int64_t>;
  if (job.model == "cnn") return train_net<Cnn>(strategy, job, before);
  if (job.model == "small") return train_net<Mlp>(strategy, job, before, Widths{784, 64, 10});
  return train_net<Mlp>(strategy, job, before, Widths{784, 512, 512, 10});
}

}  // namespace lockstep::training
