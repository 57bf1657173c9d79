// Trains a small convolutional net on Fashion-MNIST with several replicas: threads of this process,
// and processes under `lockstep launch` or with TF_CONFIG.
//
// A dataset is shuffled, batched and shared out among the replicas. Each computes the gradients of
// its rows of a batch; apply() adds them up, and every copy of the net takes the same step.
#include <ATen/core/ivalue.h>
#include <torch/torch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"
#include "net.h"

namespace ls = lockstep;
namespace fs = std::filesystem;
using fashion_mnist::Net;
using torch::Tensor;

namespace {

struct Options {
  int replicas = 2;
  int epochs = 4;
  std::int64_t batch = 128;
  double learning_rate = 0.05;
  double momentum = 0.9;
  std::int64_t limit = 0;
  std::uint64_t seed = 1;
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::string out = "runs/fashion_mnist";
};

// Images [n, 1, 28, 28] in 0..1 and their labels [n]; or one of each.
struct Examples {
  Tensor x, y;
  static auto lockstep_members() { return std::tuple(&Examples::x, &Examples::y); }
  [[nodiscard]] std::int64_t size() const { return y.size(0); }
};

Tensor read_file(const fs::path& directory, const std::string& name) {
  const fs::path plain = directory / name;
  const fs::path packed = directory / (name + ".gz");
  const fs::path file = fs::exists(plain) ? plain : packed;
  if (!fs::exists(file)) {
    throw std::runtime_error(file.string() +
                             ": cannot be read. Install the Debian package dataset-fashion-mnist, "
                             "or name the directory with --data");
  }
  return ls::data::read_idx(file.string());
}

Examples read_examples(const fs::path& directory, const std::string& prefix, std::int64_t limit) {
  const Tensor images = read_file(directory, prefix + "-images-idx3-ubyte");
  const Tensor labels = read_file(directory, prefix + "-labels-idx1-ubyte");
  const std::int64_t rows = limit > 0 ? std::min(limit, images.size(0)) : images.size(0);
  return {images.slice(0, 0, rows).unsqueeze(1).to(torch::kFloat).div_(255),
          labels.slice(0, 0, rows).to(torch::kLong)};
}

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// On a terminal one line that is overwritten; elsewhere one line for each epoch.
class Progress {
 public:
  explicit Progress(bool speaks) : speaks_(speaks) {}
  void show(const std::string& text, bool last) {
    if (!speaks_) return;
    if (terminal_) {
      std::printf("\r\033[K%s%s", text.c_str(), last ? "\n" : "");
    } else if (last) {
      std::printf("%s\n", text.c_str());
    }
    std::fflush(stdout);  // the terminal's line does not end with a newline
  }
  [[nodiscard]] bool due() {
    if (!terminal_ || since(shown_) < 0.1) return false;
    shown_ = Clock::now();
    return true;
  }

 private:
  bool speaks_;
  bool terminal_ = isatty(STDOUT_FILENO) != 0;
  Clock::time_point shown_ = Clock::now();
};

double accuracy(ls::Strategy& strategy, const ls::Model<Net>& net, const Examples& examples) {
  std::int64_t right = 0;
  const torch::NoGradGuard no_gradients;
  const auto batches =
      strategy.distribute(ls::data::from_tensor_slices(examples).batch(ls::GlobalBatch{1000}));
  for (const auto& batch : batches) {
    const auto correct = strategy.run(
        [](Net& own, const Examples& rows) {
          own->eval();
          return own(rows.x).argmax(1).eq(rows.y).sum();
        },
        net, batch);
    right += strategy.reduce(ls::ReduceOp::sum, correct).item<std::int64_t>();
  }
  return static_cast<double>(right) / static_cast<double>(examples.size());
}

// Written beside its place first, so that a full disk leaves no half a checkpoint; and from memory,
// since libtorch ends the process if a stream of its own fails.
void save(const Net& net, const fs::path& path) {
  std::ostringstream bytes;
  torch::save(net, bytes);
  const fs::path part = path.string() + ".part";
  std::ofstream file(part, std::ios::binary);
  file << bytes.str();
  file.close();
  std::error_code failed;
  if (file) fs::rename(part, path, failed);
  if (!file || failed) {
    std::error_code ignored;
    const auto space = fs::space(path.parent_path(), ignored).available;
    fs::remove(part, ignored);
    throw std::runtime_error("cannot write the checkpoint " + path.string() + " (" +
                             std::to_string(bytes.str().size()) + " bytes; " +
                             std::to_string(space) + " are free there)");
  }
}

void train(const Options& options) {
  const Examples training = read_examples(options.data, "train", options.limit);
  const Examples test = read_examples(options.data, "t10k", 0);

  torch::manual_seed(options.seed);
  ls::MultiWorkerOptions workers;
  for (int i = 0; i < options.replicas; ++i) {
    workers.devices.emplace_back("CPU:" + std::to_string(i));
  }
  ls::MultiWorkerMirroredStrategy strategy(workers);
  const auto scope = strategy.scope();
  const ls::Model<Net> net = strategy.create<Net>();
  const auto optimizer = strategy.optimizer<torch::optim::SGD>(
      net, torch::optim::SGDOptions(options.learning_rate).momentum(options.momentum));

  // One of the workers writes and speaks.
  const bool chief = strategy.is_chief();
  const fs::path log_path = fs::path(options.out) / "log.csv";
  std::ofstream log;
  if (chief) {
    fs::create_directories(options.out);
    log.open(log_path);
    log << "epoch,step,loss,examples_per_second\n";
    std::printf("%d replicas, %lld examples, batches of %lld\n", strategy.num_replicas_in_sync(),
                static_cast<long long>(training.size()), static_cast<long long>(options.batch));
  }

  const auto dataset = ls::data::from_tensor_slices(training)
                           .shuffle(training.size(), ls::Seed{options.seed})
                           .batch(ls::GlobalBatch{options.batch});
  const auto batches = strategy.distribute(dataset);
  const std::int64_t steps = dataset.cardinality();

  Progress progress(chief);
  std::int64_t seen = 0;
  double busy = 0;
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    const auto begin = Clock::now();
    double shown = 0;
    std::int64_t step = 0;
    for (const auto& batch : batches) {
      const auto losses = strategy.run(
          [](ls::ReplicaContext& replica, Net& own, ls::Optimizer& opt, const Examples& rows) {
            own->train();
            const Tensor loss =
                torch::cross_entropy_loss(own(rows.x), rows.y, {}, torch::Reduction::Sum) /
                replica.global_batch_size();
            loss.backward();
            opt.apply(replica);
            return loss.detach();
          },
          net, optimizer, batch);
      const bool last = ++step == steps;
      seen += batch.global_size();
      // To add up the loss is for all workers at the same steps.
      if (last || (strategy.num_workers() == 1 ? progress.due() : step % 50 == 0)) {
        shown = strategy.reduce(ls::ReduceOp::sum, losses).item<double>();
        const double rate = static_cast<double>(step * options.batch) / since(begin);
        char line[160];
        std::snprintf(line, sizeof line, "epoch %d/%d  step %lld/%lld  loss %.3f  %.0f examples/s",
                      epoch, options.epochs, static_cast<long long>(step),
                      static_cast<long long>(steps), shown, rate);
        progress.show(line, last);
        if (chief) log << epoch << ',' << step << ',' << shown << ',' << rate << std::endl;
      }
    }
    busy += since(begin);
  }

  const double test_accuracy = accuracy(strategy, net, test);
  if (!chief) return;
  const fs::path checkpoint = fs::path(options.out) / "model.pt";
  save(net[0], checkpoint);
  log.close();
  if (!log) throw std::runtime_error("cannot write the log " + log_path.string());
  std::printf("test accuracy  %.2f %%\n", 100 * test_accuracy);
  std::printf("throughput     %.0f examples/s\n", static_cast<double>(seen) / busy);
  std::printf("checkpoint     %s\nlog            %s\n", checkpoint.c_str(), log_path.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  // Re-executes the program with faster kernels if OpenBLAS does not know this processor.
  ls::choose_blas_kernels(argv);
  ls::tune_process_memory();  // this process does nothing but train: faster steps
  // An interrupted run leaves its progress in a file that standard output is redirected to.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Options options;
  CLI::App app(
      "Trains a convolutional net on Fashion-MNIST with several replicas: threads of this process, "
      "and those of every other worker under `lockstep launch` or with TF_CONFIG.");
  app.option_defaults()->always_capture_default();
  app.add_option("--replicas", options.replicas, "threads that train together, in each process")
      ->check(CLI::Range(1, 64));
  app.add_option("--epochs", options.epochs, "passes over the data")->check(CLI::Range(1, 1000));
  app.add_option("--batch", options.batch, "examples a step, over all replicas")
      ->check(CLI::Range(1, 60000));
  app.add_option("--learning-rate", options.learning_rate)->check(CLI::PositiveNumber);
  app.add_option("--momentum", options.momentum)->check(CLI::Range(0.0, 1.0));
  app.add_option("--limit", options.limit, "use only the first examples; 0 for all")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seed", options.seed, "equal seeds, equal weights");
  app.add_option("--data", options.data, "directory with the four IDX files");
  app.add_option("--out", options.out, "directory for the checkpoint and the log");
  CLI11_PARSE(app, argc, argv);
  try {
    train(options);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "fashion_mnist: %s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fashion_mnist: %s\n", error.what());
    return 1;
  }
  return 0;
}
