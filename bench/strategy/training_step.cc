#include "bench/strategy/training_step.h"

#include <ATen/core/ivalue.h>
#include <torch/torch.h>

#include <vector>

#include "bench/strategy/two_threads.h"
#include "lockstep/lockstep.h"

namespace lockstep::bench {

namespace {

constexpr int kReplicas = 2;
constexpr int kBatch = 64;  // a replica
constexpr double kRate = 0.01;
constexpr double kMomentum = 0.9;

struct MlpImpl : torch::nn::Module {
  MlpImpl() {
    register_module("a", a);
    register_module("b", b);
    register_module("c", c);
  }
  Tensor forward(const Tensor& x) { return c(torch::relu(b(torch::relu(a(x))))); }
  static Tensor input() { return torch::randn({kBatch, 784}); }
  torch::nn::Linear a{784, 512}, b{512, 512}, c{512, 10};
};
TORCH_MODULE(Mlp);

struct CnnImpl : torch::nn::Module {
  CnnImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("hidden", hidden);
    register_module("output", output);
  }
  Tensor forward(Tensor x) {
    x = torch::max_pool2d(torch::relu(conv1(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return output(torch::relu(hidden(x.flatten(1))));
  }
  static Tensor input() { return torch::randn({kBatch, 1, 28, 28}); }
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 16, 3).padding(1)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(16, 32, 3).padding(1)};
  torch::nn::Linear hidden{32 * 7 * 7, 128};
  torch::nn::Linear output{128, 10};
};
TORCH_MODULE(Cnn);

template <class Net>
std::vector<Tensor> gradients(Net& net, const Tensor& x, const Tensor& y) {
  return torch::autograd::grad({torch::nn::functional::cross_entropy(net->forward(x), y)},
                               net->parameters());
}

void momentum_step(Tensor weight, Tensor velocity, const Tensor& gradient) {
  velocity.mul_(kMomentum).add_(gradient);
  weight.sub_(velocity, kRate);
}

Tensor labels() { return torch::randint(10, {kBatch}, torch::kLong); }

MirroredOptions two_replicas() {
  MirroredOptions options;
  options.devices = {"CPU:0", "CPU:1"};
  options.replicas.pin = true;  // as the threads that it is measured beside
  return options;
}

template <class Net>
class Connected : public Trainer {
 public:
  Connected()
      : strategy_(two_replicas()),
        net_(strategy_.create<Net>()),
        x_(strategy_.distribute_values_from_function(
            [](const ValueContext&) { return Net::Impl::input(); })),
        y_(strategy_.distribute_values_from_function(
            [](const ValueContext&) { return labels(); })) {
    const auto scope = strategy_.scope();
    for (const Variable& w : net_.variables()) {
      const auto beside = strategy_.colocate_vars_with(w);
      velocities_.push_back(variable("velocity", torch::zeros(w.shape())));
    }
  }

  void steps(int count) override {
    const auto scope = strategy_.scope();
    for (int i = 0; i < count; ++i) {
      strategy_.run(
          [this](ReplicaContext& replica, Net& net, const Tensor& x, const Tensor& y) {
            replica.merge_call(
                [this](Strategy& strategy, const std::vector<PerReplica<Tensor>>& all) {
                  apply(strategy, all);
                },
                gradients(net, x, y));
          },
          net_, x_, y_);
    }
  }

 private:
  void apply(Strategy& strategy, const std::vector<PerReplica<Tensor>>& all) {
    const auto& weights = net_.variables();
    std::vector<std::pair<PerReplica<Tensor>, Variable>> pairs;
    for (std::size_t i = 0; i < all.size(); ++i) pairs.emplace_back(all[i], weights[i]);
    strategy.batch_update(weights, momentum_step, velocities_,
                          strategy.batch_reduce_to(ReduceOp::mean, pairs));
  }

  MirroredStrategy strategy_;
  Model<Net> net_;
  PerReplica<Tensor> x_;
  PerReplica<Tensor> y_;
  std::vector<Variable> velocities_;
};

/// The threads live as long as the trainer, as lanes do.
template <class Net>
class Unconnected : public Trainer {
 public:
  Unconnected() {
    for (int i = 0; i < kReplicas; ++i) replicas_.push_back(std::make_unique<Replica>());
  }

  void steps(int count) override {
    threads_.run([&](int index) { replicas_[static_cast<std::size_t>(index)]->steps(count); });
  }

 private:
  struct Replica {
    Net net;
    Tensor x = Net::Impl::input();
    Tensor y = labels();
    std::vector<Tensor> velocities;

    Replica() {
      for (const Tensor& w : net->parameters()) velocities.push_back(torch::zeros_like(w));
    }
    void steps(int count) {
      for (int i = 0; i < count; ++i) {
        const std::vector<Tensor> all = gradients(net, x, y);
        const torch::NoGradGuard not_recorded;
        const std::vector<Tensor> weights = net->parameters();
        for (std::size_t k = 0; k < all.size(); ++k) {
          momentum_step(weights[k].detach(), velocities[k], all[k]);
        }
      }
    }
  };

  std::vector<std::unique_ptr<Replica>> replicas_;
  TwoThreads threads_;
};

}  // namespace

std::unique_ptr<Trainer> connected_trainer(NetKind kind) {
  if (kind == NetKind::mlp) return std::make_unique<Connected<Mlp>>();
  return std::make_unique<Connected<Cnn>>();
}

std::unique_ptr<Trainer> unconnected_trainer(NetKind kind) {
  if (kind == NetKind::mlp) return std::make_unique<Unconnected<Mlp>>();
  return std::make_unique<Unconnected<Cnn>>();
}

}  // namespace lockstep::bench
