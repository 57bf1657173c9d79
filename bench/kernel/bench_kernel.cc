// How close the kernel comes to the machine's own streaming loop of the same reads and writes, on
// one thread. Exit code 1 if a target is short.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "bench/kernel/streaming.h"
#include "bench/support/paired.h"
#include "kernel/reduce.h"

namespace lockstep::bench {
namespace {

constexpr std::size_t kMiB = 1 << 20;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<void, Free>;

/// Aligned to a page and touched, so that no page fault is timed.
Memory allocate(std::size_t bytes, int seed) {
  Memory memory(std::aligned_alloc(4096, bytes));
  auto* values = static_cast<float*>(memory.get());
  for (std::size_t i = 0; i < bytes / sizeof(float); ++i) {
    values[i] = static_cast<float>(i % 1000 + static_cast<std::size_t>(seed));
  }
  return memory;
}

/// N inputs and a target; calls are repeated until they take long enough to time.
class Contest {
 public:
  Contest(DType dtype, int streams, std::size_t bytes)
      : dtype_(dtype),
        count_(bytes / size_of(dtype)),
        merges_(kernel::tree_merges(streams)),
        repeats_(std::max<std::size_t>(1, 32 * kMiB / bytes)),
        target_(allocate(bytes, 0)) {
    for (int i = 0; i < streams; ++i) {
      memory_.push_back(allocate(bytes, i + 1));
      inputs_.push_back({memory_.back().get()});
      floats_.push_back(static_cast<const float*>(memory_.back().get()));
    }
  }

  void ours() {
    const kernel::Target targets[] = {{target_.get()}};
    for (std::size_t i = 0; i < repeats_; ++i) {
      kernel::reduce({.op = Op::sum,
                      .dtype = dtype_,
                      .inputs = inputs_,
                      .merges = merges_,
                      .targets = targets,
                      .count = count_});
    }
  }

  void other(Stores stores) {
    for (std::size_t i = 0; i < repeats_; ++i) {
      if (dtype_ == DType::float32) {
        stream_add(stores, floats_.data(), static_cast<int>(floats_.size()),
                   static_cast<float*>(target_.get()), count_);
      } else {
        stream_xor(stores, static_cast<const std::uint16_t*>(inputs_[0].data),
                   static_cast<const std::uint16_t*>(inputs_[1].data),
                   static_cast<std::uint16_t*>(target_.get()), count_);
      }
    }
  }

  /// The kind of store that makes the other side faster here and now.
  Stores faster_stores() {
    std::vector<double> cached;
    std::vector<double> around;
    for (int i = 0; i < 5; ++i) {
      cached.push_back(seconds(Timer::thread, [&] { other(Stores::cached); }));
      around.push_back(seconds(Timer::thread, [&] { other(Stores::around_the_cache); }));
    }
    const double best_cached = *std::min_element(cached.begin(), cached.end());
    const double best_around = *std::min_element(around.begin(), around.end());
    fmt::print("streaming loop: cached stores {:.1f} us, around the cache {:.1f} us a call\n",
               best_cached / static_cast<double>(repeats_) * 1e6,
               best_around / static_cast<double>(repeats_) * 1e6);
    return best_around < best_cached ? Stores::around_the_cache : Stores::cached;
  }

 private:
  DType dtype_;
  std::size_t count_;
  std::vector<std::uint8_t> merges_;
  std::size_t repeats_;
  Memory target_;
  std::vector<Memory> memory_;
  std::vector<kernel::Input> inputs_;
  std::vector<const float*> floats_;
};

struct Row {
  const char* name;
  DType dtype;
  int streams;
  std::size_t bytes;
  double required;
};

int run() {
  constexpr Row rows[] = {
      {"kernel_sum_2x64MiB_f32", DType::float32, 2, 64 * kMiB, 0.80},
      {"kernel_sum_4x64MiB_f32", DType::float32, 4, 64 * kMiB, 0.80},
      {"kernel_sum_8x64MiB_f32", DType::float32, 8, 64 * kMiB, 0.80},
      {"kernel_sum_2x1MiB_f32", DType::float32, 2, kMiB, 0.70},
      {"kernel_sum_2x64MiB_bf16", DType::bfloat16, 2, 64 * kMiB, 0.70},
  };
  fmt::print("instruction set {}\n", kernel::target_name());
  Targets targets;
  for (const Row& row : rows) {
    Contest contest(row.dtype, row.streams, row.bytes);
    const Stores stores = contest.faster_stores();
    const PairedResult result = paired_ratio(
        {.timer = Timer::thread}, [&] { contest.ours(); }, [&] { contest.other(stores); });
    targets.add(row.name, result, row.required);
  }
  return targets.finish();
}

}  // namespace
}  // namespace lockstep::bench

int main() { return lockstep::bench::run(); }
