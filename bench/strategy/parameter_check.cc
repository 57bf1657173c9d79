#include "bench/strategy/parameter_check.h"

#include <string>

#include "bench/train/net.h"
#include "lockstep/lockstep.h"

namespace lockstep::bench {

namespace {

using train::Net;

constexpr int kReplicas = 2;

MirroredOptions two_replicas() {
  MirroredOptions options;
  options.devices = {"CPU:0", "CPU:1"};
  return options;
}

}  // namespace

PairedResult parameter_check_vs_step() {
  MirroredStrategy strategy(two_replicas());
  const auto scope = strategy.scope();
  const Model<Net> net = strategy.create<Net>(std::string("mlp25m"));
  // Never by itself: here it is called between the steps.
  const auto sgd = strategy.optimizer<torch::optim::SGD>(
      net, torch::optim::SGDOptions(0.01).momentum(0.9), {.check_every = 0});
  const auto x = strategy.distribute_values_from_function([](const ValueContext&) {
    return torch::randn({train::kBatch, 784});
  });
  const auto y = strategy.distribute_values_from_function(
      [](const ValueContext&) { return torch::randint(10, {train::kBatch}, torch::kLong); });
  const auto step = [](ReplicaContext& replica, Net& own, Optimizer& optimizer, const Tensor& rows,
                       const Tensor& labels) {
    (torch::nn::functional::cross_entropy(own->forward(rows), labels) / kReplicas).backward();
    optimizer.apply(replica);
  };
  return paired_ratio(
      {}, [&] { sgd.check_parameters(); }, [&] { strategy.run(step, net, sgd, x, y); });
}

}  // namespace lockstep::bench
