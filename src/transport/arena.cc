#include "transport/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "sys/pages.h"

namespace lockstep::transport {

using sys::kHugePage;
using sys::kPage;
using sys::round_up;

Arena::Arena(std::shared_ptr<sys::Segment> segment, std::size_t begin, std::size_t size,
             Commit commit)
    : room_(std::make_shared<Room>()),
      base_(segment->data() + begin),
      size_(size),
      commit_(std::move(commit)) {
  room_->segment = std::move(segment);
  const MutexLock lock(room_->mutex);
  room_->free.emplace(begin, size);
}

bool Arena::Room::take(std::size_t bytes, std::size_t& offset) {
  // What can have huge pages begins at one.
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kPage;
  const MutexLock lock(mutex);
  for (auto it = free.begin(); it != free.end(); ++it) {
    const auto [begin, size] = *it;
    const std::size_t first = round_up(begin, alignment);
    const std::size_t end = begin + size;
    if (first > end || end - first < bytes) continue;
    free.erase(it);
    if (first > begin) free.emplace(begin, first - begin);
    if (end > first + bytes) free.emplace(first + bytes, end - first - bytes);
    offset = first;
    return true;
  }
  return false;
}

void Arena::Room::give_back(std::size_t offset, std::size_t bytes) noexcept {
  segment->release(offset, bytes);
  try {
    const MutexLock lock(mutex);
    auto at = free.emplace(offset, bytes).first;
    if (const auto next = std::next(at); next != free.end() && offset + bytes == next->first) {
      at->second += next->second;
      free.erase(next);
    }
    if (at == free.begin()) return;
    const auto before = std::prev(at);
    if (before->first + before->second != at->first) return;
    before->second += at->second;
    free.erase(at);
  } catch (...) {
    return;  // out of memory for the note: the room stays unused
  }
}

std::size_t Arena::take(std::size_t whole) {
  std::size_t offset = 0;
  if (whole > size_ || !room_->take(whole, offset)) {
    throw SystemError(
        fmt::format("no room for {} bytes in the {} bytes of address space that a "
                    "rank has for memory shared with its host",
                    whole, size_));
  }
  return offset;
}

std::shared_ptr<std::byte> Arena::allocate(std::size_t bytes) {
  const Block block = reserve(bytes, bytes);
  const auto offset = static_cast<std::size_t>(block.data - room_->segment->data());
  return {block.data, [room = room_, offset, whole = block.bytes](std::byte*) {
            room->give_back(offset, whole);
          }};
}

Arena::Block Arena::reserve(std::size_t bytes, std::size_t committed) {
  if (bytes > size_) (void)take(bytes);  // throws
  const std::size_t whole = round_up(std::max<std::size_t>(bytes, 1), kPage);
  const Block block{room_->segment->data() + take(whole), whole};
  try {
    commit(block.data, std::max<std::size_t>(committed, 1));
  } catch (...) {
    free(block);
    throw;
  }
  return block;
}

void Arena::free(const Block& block) noexcept {
  room_->give_back(static_cast<std::size_t>(block.data - room_->segment->data()), block.bytes);
}

void Arena::commit(const std::byte* data, std::size_t bytes) {
  const auto offset = static_cast<std::size_t>(data - room_->segment->data());
  const std::size_t first = offset / kPage * kPage;
  raise_if_error(commit_(first, round_up(offset + bytes, kPage) - first));
}

}  // namespace lockstep::transport
