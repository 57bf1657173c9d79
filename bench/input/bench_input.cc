// How fast datasets are: reading and decoding beside the bare work of the same kind, and batches
// beside the training step that eats them: with tune_process_memory(), and with the process's memory
// as it comes. Exits 1 if a target is short.
// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "bench/input/bare_parse.h"
#include "bench/input/fashion_mnist_step.h"
#include "bench/support/paired.h"
#include "format/window.h"
#include "lockstep/dataset.h"
#include "lockstep/process_memory.h"
#include "lockstep/readers.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep::bench {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

/// For work of one thread that waits for nobody.
constexpr PairOptions kOneThread{.timer = Timer::thread};

/// Random bytes: nothing in between can be clever about them.
std::string random_bytes(std::size_t size) {
  std::mt19937_64 random(1);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

/// A file of records of about this size, between a half and one and a half of it.
void write_records(const std::string& path, std::size_t file_bytes, std::size_t record_bytes) {
  const std::string bytes = random_bytes(2 * record_bytes);
  std::mt19937_64 random(2);
  RecordWriter writer(path);
  for (std::size_t written = 0; written < file_bytes;) {
    const std::size_t size = record_bytes / 2 + random() % (record_bytes + 1);
    writer.write(std::string_view(bytes).substr(random() % (bytes.size() - size + 1), size));
    written += size;
  }
  writer.close();
}

/// Peak of the memory this process has had.
std::size_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * kKiB;
  }
  return 0;
}

// --- Memory. ------------------------------------------------------------------------------------

/// A shuffle over a large file may take what its buffer holds, and little else.
void memory(Targets& targets, const TemporaryDirectory& directory) {
  constexpr std::size_t kRecord = 64 * kKiB;
  constexpr std::int64_t kBuffer = 1000;
  const std::string file = directory.path() + "/large";
  write_records(file, 1000 * kMiB, kRecord);
  const std::size_t before = peak_bytes();
  std::size_t bytes = 0;
  for (const std::string& record : data::tfrecord(file).shuffle(kBuffer, Seed{1})) {
    bytes += record.size();
  }
  const std::size_t growth = peak_bytes() - before;
  const double buffers = static_cast<double>(kBuffer) * kRecord;
  targets.add("shuffle_buffer_vs_memory_growth", buffers / static_cast<double>(growth), 0.5,
              fmt::format("{} MiB read through shuffle({}) of records of about {} KiB: the buffer "
                          "holds {:.0f} MiB, the process grew by {:.0f} MiB",
                          bytes / kMiB, kBuffer, kRecord / kKiB, buffers / kMiB,
                          static_cast<double>(growth) / kMiB));
  std::remove(file.c_str());
}

// --- Records. -----------------------------------------------------------------------------------

std::size_t read_dataset(const Dataset<std::string>& records) {
  std::size_t bytes = 0;
  for (const std::string& record : records) bytes += record.size();
  return bytes;
}

/// The file in blocks as the reader has them, and one checksum over every block.
std::uint32_t read_and_sum(const std::string& path, std::vector<std::byte>& block) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw std::runtime_error("cannot open " + path);
  std::uint32_t sum = 0;
  for (;;) {
    const ssize_t got = ::read(file, block.data(), block.size());
    if (got <= 0) break;
    sum ^= crc32c(std::span(block).first(static_cast<std::size_t>(got)));
  }
  ::close(file);
  return sum;
}

PairedResult records_of(const TemporaryDirectory& directory, std::size_t record_bytes) {
  constexpr std::size_t kFile = 256 * kMiB;
  const std::string file = directory.path() + "/records";
  write_records(file, kFile, record_bytes);
  const auto dataset = data::tfrecord(file);
  std::vector<std::byte> block(format::Window::kBlock);
  std::size_t read = 0;
  std::uint32_t sum = 0;
  const PairedResult result = paired_ratio(
      kOneThread, [&] { read += read_dataset(dataset); },
      [&] { sum ^= read_and_sum(file, block); });
  fmt::print("  records of {:4} KiB: {:.2f} GB/s, read and checksum alone {:.2f} GB/s\n",
             record_bytes / kKiB, static_cast<double>(kFile) / result.ours_seconds / 1e9,
             static_cast<double>(kFile) / result.other_seconds / 1e9);
  return result;
}

void records(Targets& targets, const TemporaryDirectory& directory) {
  for (const std::size_t size : {kKiB, 128 * kKiB}) {
    const PairedResult result = records_of(directory, size);
    fmt::print("    ratio {:.3f} [{:.3f} .. {:.3f}]\n", result.median, result.lower_quartile,
               result.upper_quartile);
  }
  targets.add("tfrecord_vs_read_plus_crc", records_of(directory, 8 * kKiB), 0.80);
}

// --- Examples. ----------------------------------------------------------------------------------

PairedResult decoding(const std::string& record, const std::vector<FeatureSpec>& features) {
  constexpr int kCalls = 20'000;
  const auto parse = data::parse_example(features);
  BareParse bare;
  std::size_t found = 0;
  const PairedResult result = paired_ratio(
      kOneThread,
      [&] {
        for (int i = 0; i < kCalls; ++i) found += parse(record).size();
      },
      [&] {
        for (int i = 0; i < kCalls; ++i) found += bare.parse(record) ? 1 : 0;
      });
  fmt::print("  {:6} bytes, {} features: {:.0f} ns, protobuf alone {:.0f} ns, ratio {:.2f}\n",
             record.size(), features.size(), result.ours_seconds / kCalls * 1e9,
             result.other_seconds / kCalls * 1e9, result.median);
  return result;
}

void examples(Targets& targets) {
  std::vector<float> image(784);
  std::iota(image.begin(), image.end(), 0.0F);
  decoding(encode_example({{"image", std::vector<std::string>{random_bytes(100'000)}},
                           {"label", std::vector<std::int64_t>{7}}}),
           {fixed_bytes("image"), fixed_int64("label")});
  Example click{{"label", std::vector<std::int64_t>{1}}};
  std::vector<FeatureSpec> click_features{fixed_int64("label")};
  for (int i = 0; i < 13; ++i) {
    const std::string name = fmt::format("x{:02}", i);
    click[name] = std::vector<float>{1.0F};
    click_features.push_back(fixed_float(name));
  }
  decoding(encode_example(click), click_features);
  targets.add("example_decode_vs_protobuf",
              decoding(encode_example({{"image", image}, {"label", std::vector<std::int64_t>{7}}}),
                       {fixed_float("image", {28, 28}), fixed_int64("label")}),
              0.50);
}

// --- Batches. -----------------------------------------------------------------------------------

struct Labelled {
  Tensor image, label;
  static auto lockstep_members() { return std::tuple(&Labelled::image, &Labelled::label); }
};

/// Whole epochs, with the filling of the shuffle's buffer, against some steps: a ratio of rates.
PairedResult batches_vs_step() {
  const std::string directory = "/usr/share/datasets/fashion-mnist/";
  constexpr std::int64_t kRows = 60'000;
  constexpr std::int64_t kBatch = 256;
  constexpr int kSteps = 5;
  const Tensor images = data::read_idx(directory + "train-images-idx3-ubyte.gz")
                            .unsqueeze(1)
                            .to(at::kFloat)
                            .div_(255);
  const Tensor labels = data::read_idx(directory + "train-labels-idx1-ubyte.gz").to(at::kLong);
  const auto train = data::from_tensor_slices(Labelled{images, labels})
                         .shuffle(kRows, Seed{1})
                         .batch(GlobalBatch{kBatch});
  FashionMnistStep step(images.slice(0, 0, kBatch), labels.slice(0, 0, kBatch));
  std::int64_t rows = 0;
  PairedResult result = paired_ratio(
      {},
      [&] {
        for (const Labelled& batch : train) rows += batch.label.size(0);
      },
      [&] { step.steps(kSteps); });
  const double per_epoch = static_cast<double>(train.cardinality());
  for (double* ratio : {&result.median, &result.lower_quartile, &result.upper_quartile}) {
    *ratio *= per_epoch / kSteps;
  }
  result.ours_seconds /= per_epoch;
  result.other_seconds /= kSteps;
  return result;
}

/// The target is that of a tuned process, which steps faster. It stays tuned, so this comes last.
void batches(Targets& targets) {
  Targets::print("fashion_mnist_batches_vs_step_defaults", batches_vs_step());
  tune_process_memory();
  targets.add("fashion_mnist_batches_vs_step", batches_vs_step(), 20);
}

int run() {
  Targets targets;
  {
    const TemporaryDirectory directory;
    memory(targets, directory);
    records(targets, directory);
  }
  examples(targets);
  batches(targets);
  return targets.finish();
}

}  // namespace
}  // namespace lockstep::bench

int main() {
  try {
    return lockstep::bench::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_input: {}\n", error.what());
    return 1;
  }
}
