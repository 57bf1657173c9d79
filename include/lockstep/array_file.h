// ArrayFile: what an IDX file (the MNIST family) or an NPY file (numpy.save) holds, by its header.
//
//   if (const auto array = array_file_info("train-images-idx3-ubyte.gz")) use(array->shape);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/dtype.h"

namespace lockstep {

enum class ArrayFormat { idx, npy };

struct ArrayFileInfo {
  ArrayFormat format = ArrayFormat::idx;
  DType type = DType::uint8;
  std::vector<std::int64_t> shape;  // empty: one element
};

/// Nothing if the file does not begin as one of them; compressed files are looked into. DataError
/// if the header is damaged, SystemError if the file cannot be read.
std::optional<ArrayFileInfo> array_file_info(const std::string& path);

}  // namespace lockstep
