// A table of a thousand words of which a step sees a few: gradients have the rows that were used,
// and only those travel. One worker or several:
//
//   lockstep launch -n 2 -- ./embeddings
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

namespace ls = lockstep;
using torch::Tensor;

constexpr std::int64_t kWords = 1000;

struct TableImpl : torch::nn::Module {
  TableImpl() : scores(torch::nn::EmbeddingOptions(kWords, 1).sparse(true)) {
    register_module("scores", scores);
    torch::nn::init::zeros_(scores->weight);
  }
  Tensor forward(const Tensor& words) { return scores(words).squeeze(1); }
  torch::nn::Embedding scores;
};
TORCH_MODULE(Table);

// Sixteen words; the score to be learned is 1 for even ones and -1 for odd ones.
Tensor target(const Tensor& words) { return 1 - 2 * words.remainder(2).to(torch::kFloat); }

int main(int, char** argv) {
  // Re-executes the program with faster kernels if OpenBLAS does not know this processor.
  ls::choose_blas_kernels(argv);
  try {
    ls::MultiWorkerMirroredStrategy strategy;
    const auto scope = strategy.scope();
    const auto net = strategy.create<Table>();
    // SGD and Adagrad take sparse gradients; torch's other optimizers do not.
    const auto sgd = strategy.optimizer<torch::optim::SGD>(net, torch::optim::SGDOptions(2.0));
    const auto data = strategy.distribute(ls::data::from_tensor_slices(torch::arange(16) * 61)
                                              .batch(ls::GlobalBatch{8})
                                              .with_options({ls::AutoShardPolicy::data}));
    for (int epoch = 0; epoch < 20; ++epoch) {
      for (const auto& batch : data) {
        strategy.run(
            [](ls::ReplicaContext& replica, Table& own, ls::Optimizer& opt, const Tensor& words) {
              const Tensor errors = own(words) - target(words);
              (errors.square().sum() / replica.global_batch_size()).backward();
              opt.apply(replica);
            },
            net, sgd, batch);
      }
    }
    if (!strategy.is_chief()) return 0;
    const Tensor table = net[0]->scores->weight.detach().flatten();
    std::printf("%s%d of %d rows have changed: word 61 has %.2f, word 122 has %.2f\n",
                sgd.explain().c_str(), table.count_nonzero().item<int>(), static_cast<int>(kWords),
                table[61].item<double>(), table[122].item<double>());
  } catch (const ls::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
