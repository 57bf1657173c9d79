#include "idx.h"

#include <zlib.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace fashion_mnist {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& file, const std::string& why) {
  throw std::runtime_error(file.string() + ": " + why);
}

// zlib reads plain files as they are.
class Reader {
 public:
  explicit Reader(fs::path file)
      : path_(std::move(file)), file_(gzopen(path_.c_str(), "rb"), gzclose) {
    if (!file_) {
      refuse(path_,
             "cannot be read. Install the Debian package dataset-fashion-mnist, or name the "
             "directory with --data");
    }
  }

  void read(void* to, std::size_t bytes) {
    std::size_t done = 0;
    while (done < bytes) {
      const auto some = static_cast<unsigned>(std::min<std::size_t>(bytes - done, 1U << 20U));
      const int got = gzread(file_.get(), static_cast<char*>(to) + done, some);
      if (got <= 0) refuse(path_, "ends after " + std::to_string(done) + " bytes of its data");
      done += static_cast<std::size_t>(got);
    }
  }

  std::int64_t read_number() {
    std::array<unsigned char, 4> bytes{};
    read(bytes.data(), bytes.size());
    return (std::int64_t{bytes[0]} << 24) | (bytes[1] << 16) | (bytes[2] << 8) | bytes[3];
  }

  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
};

// 0x08 stands for unsigned bytes, the last byte for the number of dimensions.
torch::Tensor read_bytes(const fs::path& path, int dimensions) {
  Reader reader(path);
  if (reader.read_number() != 0x0800 + dimensions) {
    refuse(path, "is no IDX file of bytes with " + std::to_string(dimensions) + " dimensions");
  }
  std::vector<std::int64_t> shape;
  std::int64_t count = 1;
  for (int i = 0; i < dimensions; ++i) {
    shape.push_back(reader.read_number());
    count *= shape.back();
    if (shape.back() <= 0 || count > (std::int64_t{1} << 31))
      refuse(path, "has an impossible shape");
  }
  torch::Tensor tensor = torch::empty(shape, torch::kUInt8);
  reader.read(tensor.data_ptr(), static_cast<std::size_t>(count));
  return tensor;
}

fs::path find(const fs::path& directory, const std::string& name) {
  for (const char* ending : {".gz", ""}) {
    const fs::path path = directory / (name + ending);
    if (fs::exists(path)) return path;
  }
  return directory / (name + ".gz");
}

}  // namespace

Dataset read_dataset(const fs::path& directory, const std::string& prefix) {
  const fs::path images = find(directory, prefix + "-images-idx3-ubyte");
  const fs::path labels = find(directory, prefix + "-labels-idx1-ubyte");
  Dataset data{read_bytes(images, 3).unsqueeze(1).to(torch::kFloat).div_(255),
               read_bytes(labels, 1).to(torch::kLong)};
  if (data.images.size(0) != data.size()) {
    refuse(labels, "has " + std::to_string(data.size()) + " labels for " +
                       std::to_string(data.images.size(0)) + " images");
  }
  return data;
}

}  // namespace fashion_mnist
