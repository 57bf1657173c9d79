#include "tensor/blocks.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace lockstep::tensor {

std::shared_ptr<void> Blocks::take(std::size_t bytes) {
  std::shared_ptr<void> block = find_or_make(bytes);
  void* const data = block.get();
  return {data, [blocks = shared_from_this(), block = std::move(block), bytes](void*) mutable {
            blocks->give_back(std::move(block), bytes);
          }};
}

std::shared_ptr<void> Blocks::find_or_make(std::size_t bytes) {
  const MutexLock lock(mutex_);
  const std::size_t used = used_ + bytes;
  const std::size_t most_used = std::max(most_used_, used);
  std::shared_ptr<void> block;
  if (const auto found = waiting_.find(bytes); found != waiting_.end()) {
    block = std::move(found->second);
    waiting_.erase(found);
    waiting_bytes_ -= bytes;
  } else {
    shrink_to(most_used - used);
    block = source_(bytes);
  }
  used_ = used;
  most_used_ = most_used;
  return block;
}

void Blocks::give_back(std::shared_ptr<void> block, std::size_t bytes) noexcept {
  const MutexLock lock(mutex_);
  used_ -= bytes;
  try {
    waiting_.emplace(bytes, std::move(block));
    waiting_bytes_ += bytes;
  } catch (const std::bad_alloc&) {  // not even for a note of it: the block goes
  }
}

void Blocks::shrink_to(std::size_t bytes) {
  while (waiting_bytes_ > bytes) {
    const auto largest = std::prev(waiting_.end());
    waiting_bytes_ -= largest->first;
    waiting_.erase(largest);
  }
}

std::size_t Blocks::waiting_bytes() const {
  const MutexLock lock(mutex_);
  return waiting_bytes_;
}

}  // namespace lockstep::tensor
