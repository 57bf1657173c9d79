// Blocks of memory for large tensors that are made and dropped over and over. A block that is
// dropped waits here for the next of its size.
//
// Used and waiting blocks together never take more than the most that was in use at one time.
//
// Threads: any. Blocks may outlive whoever made this, and keep it.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>

#include "base/mutex.h"

namespace lockstep::tensor {

class Blocks : public std::enable_shared_from_this<Blocks> {
 public:
  /// Makes one of so many bytes.
  using Source = std::function<std::shared_ptr<void>(std::size_t)>;

  explicit Blocks(Source source) : source_(std::move(source)) {}

  /// Comes back when the last pointer to it goes. Throws what the source throws.
  [[nodiscard]] std::shared_ptr<void> take(std::size_t bytes);

  [[nodiscard]] std::size_t waiting_bytes() const;

 private:
  [[nodiscard]] std::shared_ptr<void> find_or_make(std::size_t bytes);
  void give_back(std::shared_ptr<void> block, std::size_t bytes) noexcept;
  void shrink_to(std::size_t bytes) REQUIRES(mutex_);

  Source source_;
  mutable Mutex mutex_;
  std::multimap<std::size_t, std::shared_ptr<void>> waiting_ GUARDED_BY(mutex_);  // by size
  std::size_t waiting_bytes_ GUARDED_BY(mutex_) = 0;
  std::size_t used_ GUARDED_BY(mutex_) = 0;
  std::size_t most_used_ GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::tensor
