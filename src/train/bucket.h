// Bucket: the gradients that one all-reduce sums. It knows where those of each local replica lie in
// memory, and how many of them are not in place yet.
//
// Threads: lies_in() on the replica's own thread, before its last fill(). fill() and is_full() on
// any thread. The other functions that change the bucket by one thread while the replicas wait.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/buffer.h"
#include "train/bucket_plan.h"

namespace lockstep::train {

class Bucket {
 public:
  Bucket(BucketLayout layout, int replicas)
      : layout_(std::move(layout)),
        description_(fmt::format("apply: gradients {}[{}]",
                                 to_string(tensor::to_dtype(layout_.dtype)), layout_.elements)),
        inputs_(static_cast<std::size_t>(replicas)) {
    empty();
  }

  [[nodiscard]] const BucketLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(layout_.bytes()); }
  /// For messages.
  [[nodiscard]] const std::string& description() const noexcept { return description_; }

  /// The gradients of a local replica lie in this dense tensor, in this step. The caller keeps it
  /// alive until the sum was used.
  void lies_in(int replica, const Tensor& memory) {
    const coll::Buffer buffer = tensor::buffer_of(memory);
    inputs_[static_cast<std::size_t>(replica)] = buffer;
    if (replica == 0) sum_ = buffer;
  }
  /// The same in all steps, for a bucket that several gradients share. The bucket keeps the tensor.
  void keep(int replica, Tensor flat) {
    lies_in(replica, flat);
    flats_.resize(inputs_.size());
    flats_[static_cast<std::size_t>(replica)] = std::move(flat);
  }
  /// By local replica; empty if keep() was not called.
  [[nodiscard]] const std::vector<Tensor>& flats() const noexcept { return flats_; }

  /// By local replica.
  [[nodiscard]] std::span<const coll::ConstBuffer> inputs() const noexcept { return inputs_; }
  /// Where the sum is written: over the gradients of the first local replica.
  [[nodiscard]] coll::Buffer sum() const noexcept { return sum_; }

  /// One more gradient of a replica is in place. True for the last one.
  bool fill() noexcept { return missing_.fetch_sub(1) == 1; }
  [[nodiscard]] bool is_full() const noexcept { return missing_.load() <= 0; }
  void fill_all() noexcept { missing_.store(0); }
  void empty() noexcept { missing_.store(static_cast<int>(layout_.slots.size() * inputs_.size())); }

 private:
  BucketLayout layout_;
  std::string description_;
  std::vector<Tensor> flats_;
  std::vector<coll::ConstBuffer> inputs_;
  coll::Buffer sum_;
  std::atomic<int> missing_;  // gradients of all local replicas
};

/// In the order in which they are sent.
using Buckets = std::vector<std::unique_ptr<Bucket>>;

}  // namespace lockstep::train
