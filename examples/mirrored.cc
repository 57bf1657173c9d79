// A small net on two replicas of this machine: points in the plane, two classes that no line
// separates.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

namespace ls = lockstep;
using torch::Tensor;

struct NetImpl : torch::nn::Module {
  NetImpl(int inputs, int classes) : hidden(inputs, 16), output(16, classes) {
    register_module("hidden", hidden);
    register_module("output", output);
  }
  Tensor forward(const Tensor& x) { return output(torch::tanh(hidden(x))); }
  torch::nn::Linear hidden, output;
};
TORCH_MODULE(Net);

struct Batch {
  Tensor x, y;
  static auto lockstep_members() { return std::tuple(&Batch::x, &Batch::y); }
};

// Around (1, 1) and (-1, -1) class 1, around (1, -1) and (-1, 1) class 0.
Batch points(std::int64_t count) {
  const Tensor corners = torch::randint(0, 2, {count, 2}) * 2 - 1;
  return {corners + 0.6 * torch::rand({count, 2}) - 0.3,
          corners.select(1, 0).eq(corners.select(1, 1)).to(torch::kLong)};
}

int main(int, char** argv) {
  // Re-executes the program with faster kernels if OpenBLAS does not know this processor.
  ls::choose_blas_kernels(argv);
  torch::manual_seed(1);
  ls::MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});
  const auto scope = strategy.scope();
  const auto net = strategy.create<Net>(2, 2);  // one copy a replica, equal at the start
  const auto adam = strategy.optimizer<torch::optim::Adam>(net, torch::optim::AdamOptions(0.02));
  const auto data = strategy.distribute(ls::data::from_tensor_slices(points(200))
                                            .shuffle(200, ls::Seed{7})
                                            .batch(ls::GlobalBatch{32}));

  for (int epoch = 1; epoch <= 20; ++epoch) {
    for (const auto& batch : data) {  // the last one has 8 rows
      strategy.run(
          [](ls::ReplicaContext& replica, Net& own, ls::Optimizer& opt, const Batch& rows) {
            const Tensor loss =
                torch::cross_entropy_loss(own(rows.x), rows.y, {}, torch::Reduction::Sum);
            (loss / replica.global_batch_size()).backward();
            opt.apply(replica);  // sums over both replicas, then both copies take the same step
          },
          net, adam, batch);
    }
  }
  std::printf("%sthe copies are equal: %s\n", adam.explain().c_str(),
              net.digest(0) == net.digest(1) ? "yes" : "no");

  // Any copy will do outside of the strategy.
  const torch::NoGradGuard not_recorded;
  const Batch fresh = points(100);
  const Tensor right = net[0](fresh.x).argmax(1).eq(fresh.y).sum();
  std::printf("after %d steps %d of 100 new points are right\n",
              static_cast<int>(adam.iterations()), right.item<int>());
}
