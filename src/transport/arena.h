// Arena: one rank's part of its host's segment, handed out in pieces. Peers map all arenas, so
// whatever lies in one can be reached by every rank of the host.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "base/status.h"
#include "sys/segment.h"

namespace lockstep::transport {

class Arena {
 public:
  /// Gives memory to bytes of the segment, as Segment::commit() does.
  using Commit = std::function<Status(std::size_t offset, std::size_t bytes)>;

  /// Bytes [begin, begin + size) of the segment.
  Arena(std::shared_ptr<sys::Segment> segment, std::size_t begin, std::size_t size, Commit commit);

  /// Zeroed memory at least aligned to a page; freed with the pointer, in any order, also after
  /// the arena. SystemError if memory or room is short.
  std::shared_ptr<std::byte> allocate(std::size_t bytes);

  /// Memory that stays until it is freed by hand, or with the last process that maps the segment.
  struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  /// The same as a block, of which only the first `committed` bytes are memory yet.
  Block reserve(std::size_t bytes, std::size_t committed);
  /// Gives memory to a range of a block. SystemError if memory is short.
  void commit(const std::byte* data, std::size_t bytes);
  void free(const Block& block) noexcept;

  [[nodiscard]] bool contains(const std::byte* data, std::size_t bytes) const noexcept {
    return data >= base_ && bytes <= size_ &&
           static_cast<std::size_t>(data - base_) <= size_ - bytes;
  }

 private:
  struct Room {
    Mutex mutex;
    std::map<std::size_t, std::size_t> free GUARDED_BY(mutex);  // offset: size
    std::shared_ptr<sys::Segment> segment;

    bool take(std::size_t bytes, std::size_t& offset);
    void give_back(std::size_t offset, std::size_t bytes) noexcept;
  };

  /// Offset of room for `whole` pages.
  std::size_t take(std::size_t whole);

  std::shared_ptr<Room> room_;
  std::byte* base_;
  std::size_t size_;
  Commit commit_;
};

}  // namespace lockstep::transport
