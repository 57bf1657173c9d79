// Reads the IDX files of the MNIST family, plain or compressed with gzip.
#pragma once

#include <torch/types.h>

#include <filesystem>

namespace fashion_mnist {

struct Dataset {
  torch::Tensor images;  // [n, 1, rows, columns], float, 0..1
  torch::Tensor labels;  // [n], int64

  [[nodiscard]] std::int64_t size() const { return labels.size(0); }
};

/// Throws std::runtime_error that names the file and what is wrong with it.
Dataset read_dataset(const std::filesystem::path& directory, const std::string& prefix);

}  // namespace fashion_mnist
