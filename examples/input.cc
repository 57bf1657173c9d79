// Datasets: records from a file to batches, predictions in the order of the data although the
// batches come in another one, and data without an end that is different on every worker.
#include <lockstep/readers.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

namespace ls = lockstep;
using torch::Tensor;

// A file of tf.Examples, as TensorFlow writes them too.
void write_examples(const std::string& path) {
  ls::RecordWriter writer(path, {.compression = ls::Compression::gzip});
  for (std::int64_t i = 0; i < 10; ++i) {
    ls::Example example;
    example["x"] = std::vector<float>{static_cast<float>(i), 1};
    example["label"] = std::vector<std::int64_t>{i % 2};
    writer.write(ls::encode_example(example));
  }
  writer.close();
}

// Nothing is read before the loop asks for it; prefetch() reads ahead on a thread of its own.
void read_examples(const std::string& path) {
  const auto train =
      ls::data::tfrecord(path)
          .map(ls::data::parse_example({ls::fixed_float("x", {2}), ls::fixed_int64("label")}),
               ls::Parallel{2})
          .shuffle(100, ls::Seed{7})
          .batch(ls::GlobalBatch{4})
          .prefetch(2);
  std::printf("%s", train.explain().c_str());
  for (const auto& batch : train) {
    std::printf("a batch of %d rows\n", static_cast<int>(batch.at("x").size(0)));
  }
}

// enumerate() before shuffle(): every row keeps its number, and its prediction goes there.
Tensor predictions_in_order(const Tensor& rows) {
  const auto numbered = ls::data::from_tensor_slices(rows).enumerate();
  Tensor predictions = torch::zeros(rows.size(0));
  for (const auto& [number, x] : numbered.shuffle(100, ls::Seed{3}).batch(4)) {
    predictions.index_copy_(0, number, x.square());
  }
  return predictions;
}

// A generator never has to end. Seeds that differ by worker give every worker other numbers, and
// the same ones each time.
ls::Dataset<Tensor> endless(std::int64_t worker) {
  return ls::data::generator([worker] {
    return [state = 1000 + worker]() mutable {
      state = (state * 48'271) % 2'147'483'647;
      return std::optional(torch::tensor(static_cast<double>(state) / 2'147'483'647));
    };
  });
}

int main() {
  const auto path =
      std::filesystem::temp_directory_path() / (std::to_string(::getpid()) + ".tfrecord");
  write_examples(path);
  read_examples(path);
  std::filesystem::remove(path);

  const Tensor squares = predictions_in_order(torch::arange(6, torch::kFloat));
  for (std::int64_t i = 0; i < 6; ++i) std::printf("%.0f ", squares[i].item<double>());
  std::printf("in the order of the rows\n");

  for (const std::int64_t worker : {0, 1}) {
    for (const Tensor& batch : endless(worker).batch(3).take(1)) {
      std::printf("worker %d draws", static_cast<int>(worker));
      for (std::int64_t i = 0; i < 3; ++i) std::printf(" %.3f", batch[i].item<double>());
      std::printf("\n");
    }
  }
}
