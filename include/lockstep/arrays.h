// Files that hold arrays: IDX (the MNIST family), NPY and NPZ (numpy).
//
//   const Tensor images = data::read_idx("train-images-idx3-ubyte.gz");   // uint8[60000, 28, 28]
//   data::write_npy("mean.npy", images.to(at::kFloat).mean(0));
//
// Tensors are on the CPU and contiguous; IDX and NPY files may be packed (gzip, zlib). A file that
// is missing is a SystemError, one that is damaged or of another kind a DataError that names it.
#pragma once

#include <map>
#include <string>

#include "lockstep/dataset.h"

namespace lockstep::data {

Tensor read_idx(const std::string& path);
Tensor read_npy(const std::string& path);
/// The arrays of an archive by name, without the ending ".npy"; other members are left out.
std::map<std::string, Tensor> read_npz(const std::string& path);
/// As numpy.save does. Unsupported for element types that numpy does not have.
void write_npy(const std::string& path, const Tensor& tensor);

/// The items of an IDX file, which is read now and kept in memory.
Dataset<Tensor> idx(const std::string& path);

}  // namespace lockstep::data
