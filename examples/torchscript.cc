// Training a TorchScript model: each replica loads a script, trains it, and the chief saves it as
// TorchScript again. No C++ class describes the net. The script is made here, in memory; one that
// Python wrote with torch.jit.save is loaded in the same way.
//
//   ./torchscript [--steps N] [FILE]          two replicas: threads of this process
//   lockstep launch -n 2 -- ./torchscript     two workers with two replicas each
//   ./torchscript --check --steps 10          in double, and compared with plain libtorch
//
//   [FILE]: where the trained net is written, over what is there; without it, nowhere
#include <lockstep/lockstep.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>

#include "program.h"

namespace ls = lockstep;
using torch::Tensor;

// A scripted module as a torch::nn::Module: what strategy.create() makes copies of. It shares its
// tensors with the script, so both see each step.
struct ScriptedImpl : torch::nn::Module {
  explicit ScriptedImpl(const std::string& bytes) {
    std::istringstream in(bytes);
    script = torch::jit::load(in);
    for (const auto& item : script.named_parameters()) {
      register_parameter(name_of(item.name), item.value, item.value.requires_grad());
    }
    for (const auto& item : script.named_buffers()) {
      register_buffer(name_of(item.name), item.value);
    }
  }
  Tensor forward(const Tensor& x) { return script.forward({x}).toTensor(); }
  void train(bool on = true) override {
    torch::nn::Module::train(on);
    script.train(on);
  }
  static std::string name_of(std::string name) {  // torch's names have no dots
    std::replace(name.begin(), name.end(), '.', '/');
    return name;
  }
  torch::jit::Module script;
};
TORCH_MODULE(Scripted);

// Stands for the file from Python: a net of two layers, written down as TorchScript.
std::string make_script() {
  torch::jit::Module net("Net");
  const auto add = [&](const char* name, const Tensor& start) {
    net.register_parameter(name, start.requires_grad_(true), /*is_buffer=*/false);
  };
  add("weight1", torch::randn({16, 2}));
  add("bias1", torch::zeros({16}));
  add("weight2", torch::randn({2, 16}));
  add("bias2", torch::zeros({2}));
  net.define(R"(
    def forward(self, x):
        hidden = torch.tanh(torch.linear(x, self.weight1, self.bias1))
        return torch.linear(hidden, self.weight2, self.bias2)
  )");
  std::ostringstream bytes;
  net.save(bytes);
  return bytes.str();
}

struct Batch {
  Tensor x, y;
  static auto lockstep_members() { return std::tuple(&Batch::x, &Batch::y); }
};

// Points in the plane; class 1 where both coordinates have the same sign.
Batch points() {
  const Tensor x =
      torch::stack({torch::linspace(-1, 1, 500), torch::linspace(-9, 9, 500).sin()}, 1);
  return {x, x.prod(1).gt(0).to(torch::kLong)};
}

auto dataset(int steps) {
  return ls::data::from_tensor_slices(points())
      .shuffle(500, ls::Seed{7})
      .repeat()
      .batch(ls::GlobalBatch{50})
      .take(steps)
      .with_options({ls::AutoShardPolicy::data});
}

// The loss of some rows out of `all`; those of all replicas add up to the mean.
Tensor loss_of(const Tensor& scores, const Tensor& classes, std::int64_t all) {
  return torch::cross_entropy_loss(scores, classes, {}, torch::Reduction::Sum) / all;
}

torch::optim::AdamOptions adam_options() { return torch::optim::AdamOptions(0.02); }

ls::Model<Scripted> train(ls::MultiWorkerMirroredStrategy& strategy, const std::string& script,
                          int steps) {
  const auto scope = strategy.scope();
  const auto net = strategy.create<Scripted>(script);
  const auto adam = strategy.optimizer<torch::optim::Adam>(net, adam_options());
  for (const auto& batch : strategy.distribute(dataset(steps))) {
    strategy.run(
        [](ls::ReplicaContext& replica, Scripted& own, ls::Optimizer& opt, const Batch& rows) {
          loss_of(own(rows.x), rows.y, replica.global_batch_size()).backward();
          opt.apply(replica);
        },
        net, adam, batch);
  }
  adam.check_parameters();  // all copies of all workers are equal
  return net;
}

// The same in plain libtorch: the script itself, every step with all rows of the batch.
Scripted train_alone(const std::string& script, int steps) {
  Scripted net(script);
  torch::optim::Adam adam(net->parameters(), adam_options());
  for (const Batch& batch : dataset(steps)) {
    adam.zero_grad();
    loss_of(net->script.forward({batch.x}).toTensor(), batch.y, batch.x.size(0)).backward();
    adam.step();
  }
  return net;
}

int main(int argc, char** argv) try {
  // Re-executes the program with faster kernels if OpenBLAS does not know this processor.
  ls::choose_blas_kernels(argv);
  const auto options = program::parse(argc, argv, {.steps = 200});
  torch::manual_seed(1);
  const std::string script = make_script();
  ls::MultiWorkerMirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});  // of each worker
  const auto net = train(strategy, script, options.steps);
  if (!strategy.is_chief()) return 0;

  // As TorchScript again, for Python or anybody else.
  std::stringstream saved;
  net[0]->script.save(saved);
  torch::jit::Module loaded = torch::jit::load(saved);
  const Batch all = points();
  const Tensor right = loaded.forward({all.x}).toTensor().argmax(1).eq(all.y).sum();
  std::printf("%d replicas, %d steps: the saved script has %d of 500 points right\n",
              strategy.num_replicas_in_sync(), options.steps, right.item<int>());
  if (!options.file.empty()) loaded.save(options.file);
  if (!options.check) return 0;
  return program::report(program::largest_difference(*net[0], *train_alone(script, options.steps)));
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
