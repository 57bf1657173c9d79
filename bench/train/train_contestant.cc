// A process of a contestant that trains with libtorch:
//
//   train_contestant KIND --net NET --orders SOCKET [--rank R] [--overlap always|never] [--bucket
//   N]
//
//   processes   one of several workers, each with a replica; who they are is in the environment
//   threads     two replicas, threads of this process
//   solo        one replica, connected to nobody: everything but the exchange
//   plain       libtorch alone, one net, connected to nobody
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>

#include "bench/train/net.h"
#include "bench/train/orders.h"
#include "lockstep/mirrored_strategy.h"
#include "lockstep/model.h"
#include "lockstep/multi_worker_mirrored_strategy.h"
#include "lockstep/optimizer.h"
#include "lockstep/process_memory.h"

namespace lockstep::bench::train {
namespace {

struct Arguments {
  std::string kind;
  std::map<std::string, std::string> options;

  [[nodiscard]] std::string get(const std::string& name, const std::string& otherwise) const {
    const auto found = options.find(name);
    return found == options.end() ? otherwise : found->second;
  }
};

Arguments parse(int argc, char** argv) {
  if (argc < 2 || argc % 2 != 0) throw std::invalid_argument("wrong number of arguments");
  Arguments arguments{.kind = argv[1], .options = {}};
  for (int i = 2; i < argc; i += 2) arguments.options[argv[i]] = argv[i + 1];
  return arguments;
}

torch::optim::SGDOptions sgd() { return torch::optim::SGDOptions(kRate).momentum(kMomentum); }

/// A strategy of one replica would take all cores.
MirroredOptions one_thread() {
  return {.devices = {"CPU:0"}, .replicas = {.threads_per_replica = 1}};
}

GradientOptions gradients(const Arguments& arguments) {
  GradientOptions options;
  const std::string overlap = arguments.get("--overlap", "");
  if (overlap == "always") options.overlap = Overlap::always;
  if (overlap == "never") options.overlap = Overlap::never;
  options.bucket_bytes = std::stoll(arguments.get("--bucket", "0"));
  return options;
}

/// Replicas of a strategy, as its users write them; the first has the rows of this number.
void train_with(Strategy& strategy, const Arguments& arguments, int first_rows = 0) {
  const auto scope = strategy.scope();
  const std::string kind = arguments.get("--net", "");
  torch::manual_seed(kWeightSeed);
  const auto net = strategy.create<Net>(kind);
  const DistributedOptimizer optimizer =
      strategy.optimizer<torch::optim::SGD>(net, sgd(), gradients(arguments));
  std::vector<Rows> rows;  // of every replica
  for (int r = 0; r < strategy.num_replicas_in_sync(); ++r) {
    rows.push_back(rows_of(kind, first_rows + r));
  }
  const auto step = [&](ReplicaContext& replica, Net& own, Optimizer& opt) {
    const Rows& mine = rows[static_cast<std::size_t>(replica.replica_id_in_sync_group())];
    const Tensor loss = torch::nn::functional::cross_entropy(own->forward(mine.x), mine.y);
    (loss / replica.num_replicas_in_sync()).backward();
    opt.apply(replica);
    return loss.detach();
  };
  carry_out_orders(arguments.get("--orders", ""), std::stoi(arguments.get("--rank", "0")),
                   parameters_of(*net[0]), [&](int count) {
                     PerReplica<Tensor> loss = strategy.run(step, net, optimizer);
                     for (int i = 1; i < count; ++i) loss = strategy.run(step, net, optimizer);
                     return loss[0].item<double>();
                   });
  fmt::print("{}", optimizer.explain());
}

void train_alone(const Arguments& arguments) {
  // Sets up BLAS as for ours, and does nothing else.
  const MirroredStrategy settings(one_thread());
  torch::set_num_threads(1);
  const std::string kind = arguments.get("--net", "");
  const int rank = std::stoi(arguments.get("--rank", "0"));
  torch::manual_seed(kWeightSeed);
  Net net(kind);
  torch::optim::SGD optimizer(net->parameters(), sgd());
  const Rows rows = rows_of(kind, rank);
  const auto step = [&] {
    for (const Tensor& parameter : net->parameters()) parameter.mutable_grad() = Tensor();
    const Tensor loss = torch::nn::functional::cross_entropy(net->forward(rows.x), rows.y);
    loss.backward();
    optimizer.step();
    return loss.detach();
  };
  carry_out_orders(arguments.get("--orders", ""), rank, parameters_of(*net), [&](int count) {
    Tensor loss = step();
    for (int i = 1; i < count; ++i) loss = step();
    return loss.item<double>();
  });
}

void run(const Arguments& arguments) {
  if (arguments.get("--memory", "") == "tuned") tune_process_memory();
  if (arguments.kind == "processes") {
    MultiWorkerMirroredStrategy strategy({.devices = {"CPU:0"}});
    fmt::print("worker {} over {}\n", strategy.worker_index(), strategy.transport());
    train_with(strategy, arguments);
  } else if (arguments.kind == "threads") {
    MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});
    train_with(strategy, arguments);
  } else if (arguments.kind == "solo") {
    MirroredStrategy strategy(one_thread());
    train_with(strategy, arguments, std::stoi(arguments.get("--rank", "0")));
  } else if (arguments.kind == "plain") {
    train_alone(arguments);
  } else {
    throw std::invalid_argument("there is no kind " + arguments.kind);
  }
}

}  // namespace
}  // namespace lockstep::bench::train

int main(int argc, char** argv) {
  try {
    lockstep::bench::train::run(lockstep::bench::train::parse(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 1;
  }
}
