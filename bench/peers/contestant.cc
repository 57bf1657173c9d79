#include "bench/peers/contestant.h"

#include <cstdlib>
#include <new>
#include <numeric>

#include "bench/cross_device/gradient_sets.h"

namespace lockstep::bench::peers {
namespace {

std::vector<std::size_t> resnet50_tensors() {
  std::vector<std::size_t> counts;
  for (const auto& shape : resnet50().shapes) {
    std::size_t count = 1;
    for (const std::int64_t length : shape) count *= static_cast<std::size_t>(length);
    counts.push_back(count);
  }
  return counts;
}

/// Tensors fill a bucket until the next would overflow it; a larger one is a bucket of its own.
std::vector<std::size_t> buckets(const std::vector<std::size_t>& tensors) {
  constexpr std::size_t kBucket = (4 << 20) / sizeof(float);
  std::vector<std::size_t> counts;
  std::size_t open = 0;
  for (const std::size_t tensor : tensors) {
    if (open != 0 && open + tensor > kBucket) {
      counts.push_back(open);
      open = 0;
    }
    open += tensor;
  }
  if (open != 0) counts.push_back(open);
  return counts;
}

}  // namespace

std::vector<std::size_t> pieces_of(const Job& job) {
  switch (job.workload) {
    case Workload::buffer:
      return {job.bytes / sizeof(float)};
    case Workload::resnet50_buckets:
      return buckets(resnet50_tensors());
    case Workload::resnet50_one_by_one:
    case Workload::resnet50_batch:
      return resnet50_tensors();
  }
  return {};
}

std::vector<std::span<float>> cut(const Job& job, std::span<float> memory) {
  std::vector<std::span<float>> pieces;
  for (const std::size_t count : pieces_of(job)) {
    pieces.push_back(memory.first(count));
    memory = memory.subspan(count);
  }
  return pieces;
}

CallerMemory::CallerMemory(const Job& job) {
  constexpr std::size_t kPage = 4096;
  const std::vector<std::size_t> counts = pieces_of(job);
  count_ = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const std::size_t bytes = (count_ * sizeof(float) + kPage - 1) / kPage * kPage;
  memory_.reset(static_cast<float*>(std::aligned_alloc(kPage, bytes)));
  if (!memory_) throw std::bad_alloc();
  pieces_ = cut(job, all());
}

void CallerMemory::Free::operator()(float* memory) const { std::free(memory); }

}  // namespace lockstep::bench::peers
