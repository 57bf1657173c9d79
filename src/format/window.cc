#include "format/window.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep::format {

Window::Window(std::unique_ptr<ByteSource> source, std::size_t block)
    : source_(std::move(source)), block_(block) {
  assert(block > 0);
}

bool Window::fill(std::size_t size) {
  for (;;) {
    const std::size_t visible = end_ - begin_;
    if (visible >= size) return true;
    if (capacity_ < visible + block_) {
      move_into(2 * std::max(visible, block_));
    } else if (capacity_ - begin_ < std::max(visible + block_, std::min(size, capacity_))) {
      move_into(capacity_);  // before more of a large piece arrives
    }
    // A large piece may take all the room there is; else a block at a time stays in the cache.
    const std::size_t room = std::min(capacity_ - end_, std::max(block_, size - visible));
    const std::size_t got = source_->read({memory_.get() + end_, room});
    if (got == 0) return false;
    end_ += got;
  }
}

void Window::move_into(std::size_t capacity) {
  const std::size_t visible = end_ - begin_;
  if (capacity == capacity_) {
    if (visible > 0) std::memmove(memory_.get(), memory_.get() + begin_, visible);
  } else {
    // Not zeroed: every byte is written before it is seen.
    auto memory = std::make_unique_for_overwrite<std::byte[]>(capacity);
    if (visible > 0) std::memcpy(memory.get(), memory_.get() + begin_, visible);
    memory_ = std::move(memory);
    capacity_ = capacity;
  }
  origin_ += begin_;
  begin_ = 0;
  end_ = visible;
}

std::uint64_t Window::skip(std::uint64_t size) {
  const std::size_t visible = end_ - begin_;
  if (size <= visible) {
    begin_ += static_cast<std::size_t>(size);
    return size;
  }
  begin_ = end_;
  const std::uint64_t skipped = source_->skip(size - visible);
  origin_ += skipped;
  return visible + skipped;
}

}  // namespace lockstep::format
