#include "strategy/cross_device/hierarchical_copy.h"

#include <cstring>

#include "strategy/cross_device/reduce_on_lanes.h"

namespace lockstep::detail {

namespace {

/// A piece of dense memory, in the order it lies in; the tensor keeps the memory alive.
Tensor piece_of(const Tensor& tensor, const Piece& piece) {
  return tensor.as_strided({piece.end - piece.begin}, {1}, tensor.storage_offset() + piece.begin);
}

bool in_first_half(int device, int n) noexcept { return device < n / 2; }

}  // namespace

Mains mains_of(int pack, int n) noexcept {
  const int half = n / 2;
  const int first = pack % n;
  if (half == 0) return {first, first};
  return {first, first < half ? first + half : (first - half) % half};
}

int main_for(int device, Mains mains, int n) noexcept {
  return in_first_half(device, n) == in_first_half(mains.first, n) ? mains.first : mains.second;
}

void hierarchical_copy(StrategyCore& core, const std::vector<tensor::ReduceJob>& jobs,
                       const std::vector<Pack>& packs) {
  if (jobs.empty()) return;
  const int n = static_cast<int>(jobs.front().inputs.size());
  const auto at = [](const std::vector<Tensor>& all, int device) -> const Tensor& {
    return all[static_cast<std::size_t>(device)];
  };

  std::vector<tensor::ReduceJob> sums;
  for (std::size_t k = 0; k < packs.size(); ++k) {
    const Mains mains = mains_of(static_cast<int>(k), n);
    for (const Piece& piece : packs[k]) {
      const tensor::ReduceJob& job = jobs[piece.item];
      tensor::ReduceJob sum{.inputs = {}, .outputs = {}, .combine = job.combine};
      for (const Tensor& input : job.inputs) sum.inputs.push_back(piece_of(input, piece));
      sum.outputs.push_back(piece_of(at(job.outputs, mains.first), piece));
      if (mains.second != mains.first) {
        sum.outputs.push_back(piece_of(at(job.outputs, mains.second), piece));
      }
      sums.push_back(std::move(sum));
    }
  }
  reduce_on_lanes(core, sums);

  // Each device copies for itself: on its own replica's thread where there is one.
  if (n <= 2) return;
  const int lanes = core.replicas();
  core.on_lanes([&](int lane) {
    for (int device = lane; device < n; device += lanes) {
      for (std::size_t k = 0; k < packs.size(); ++k) {
        const int source = main_for(device, mains_of(static_cast<int>(k), n), n);
        if (source == device) continue;
        for (const Piece& piece : packs[k]) {
          const Tensor& from = at(jobs[piece.item].outputs, source);
          const Tensor& to = at(jobs[piece.item].outputs, device);
          const std::size_t size = from.element_size();
          const std::size_t offset = static_cast<std::size_t>(piece.begin) * size;
          const std::size_t bytes = static_cast<std::size_t>(piece.end - piece.begin) * size;
          if (bytes == 0) continue;
          std::memcpy(static_cast<std::byte*>(to.data_ptr()) + offset,
                      static_cast<const std::byte*>(from.data_ptr()) + offset, bytes);
        }
      }
    }
  });
}

}  // namespace lockstep::detail
