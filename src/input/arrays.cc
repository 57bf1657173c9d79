#include "lockstep/arrays.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "format/byte_sink.h"
#include "format/byte_source.h"
#include "format/idx.h"
#include "format/npy.h"
#include "format/zip.h"
#include "input/file_bytes.h"
#include "tensor/dtype.h"

namespace lockstep::data {

namespace {

/// The bytes as a tensor that owns them. Memory has grown with the file, not with what its header
/// says, so it is taken over instead of allocated before.
Tensor tensor_of(std::vector<std::byte> bytes, const std::vector<std::int64_t>& shape, DType type) {
  const auto options = at::TensorOptions().dtype(tensor::to_scalar_type(type));
  if (bytes.empty()) return at::empty(shape, options);
  auto owner = std::make_unique<std::vector<std::byte>>(std::move(bytes));
  void* const memory = owner->data();
  return at::from_blob(
      memory, shape, [kept = std::shared_ptr(std::move(owner))](void*) {}, options);
}

Tensor read_array(format::NpyReader reader) {
  const format::NpyHeader& header = reader.header();
  if (header.array_order == format::ArrayOrder::c) {
    return tensor_of(reader.read_rest(), header.shape, header.type);
  }
  // Fortran's order is that of the reversed shape.
  std::vector<std::int64_t> shape(header.shape.rbegin(), header.shape.rend());
  const Tensor reversed = tensor_of(reader.read_rest(), shape, header.type);
  std::vector<std::int64_t> back(shape.size());
  for (std::size_t i = 0; i < back.size(); ++i) {
    back[i] = static_cast<std::int64_t>(back.size() - 1 - i);
  }
  return reversed.permute(back).contiguous();
}

format::ReadBytes stream_of(const std::string& path) {
  std::shared_ptr<format::ByteSource> source = format::open_file(path);
  return [source](std::span<std::byte> into) { return source->read(into); };
}

}  // namespace

Tensor read_idx(const std::string& path) {
  format::IdxReader reader(stream_of(path), path);
  const std::vector<std::int64_t> shape = reader.header().shape;
  const DType type = reader.header().type;
  return tensor_of(reader.read_rest(), shape, type);
}

Tensor read_npy(const std::string& path) {
  return read_array(format::NpyReader(stream_of(path), path));
}

std::map<std::string, Tensor> read_npz(const std::string& path) {
  constexpr std::string_view kEnding = ".npy";
  const FileBytes file(path);
  const format::ZipReader archive(file.read_at(), file.size(), path);
  std::map<std::string, Tensor> arrays;
  for (const format::ZipMember& member : archive.members()) {
    if (!std::string_view(member.name).ends_with(kEnding)) continue;
    const std::string name = member.name.substr(0, member.name.size() - kEnding.size());
    arrays[name] =
        read_array(format::NpyReader(archive.open(member), archive.name_of(member), member.bytes));
  }
  return arrays;
}

void write_npy(const std::string& path, const Tensor& tensor) {
  const Tensor values = tensor.detach().cpu().contiguous();
  const std::string header = format::encode_npy_header(
      {.type = tensor::to_dtype(values.scalar_type()), .shape = values.sizes().vec()});
  const auto file = format::create_file(path, Compression::none);
  file->write(std::as_bytes(std::span(header)));
  file->write({static_cast<const std::byte*>(values.data_ptr()), values.nbytes()});
  file->close();
}

Dataset<Tensor> idx(const std::string& path) { return from_tensor_slices(read_idx(path)); }

}  // namespace lockstep::data
