// GroupMemory: the memory that one rank shares with the other members of a group on its host. Each
// member has one, in its own arena, and finds the others' by the id of the group.
//
// It begins with `bytes` that the members can find. More can be added later; the owner tells the
// members by itself where it lies (ShmHost::offset_of, ShmHost::at_page).
//
//   GroupMemory mine(host, group, {0, 1}, sizeof(Board));
//   auto* board = new (mine.data()) Board;
//   std::byte* theirs = mine.find(/*index=*/1, sizeof(Board));   // null: not there yet
//
// The memory goes back to the system when all members have destroyed theirs (shm_host.h). After
// that, nothing that find() gave may be used.
//
// Thread rule: one thread at a time; find() from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/shm_host.h"

namespace lockstep::transport {

class GroupMemory {
 public:
  /// `indices` are the members' on this host, this rank's included. Borrows the host. SystemError
  /// if memory is short or this rank is in too many groups.
  GroupMemory(ShmHost& host, std::uint64_t group, const std::vector<int>& indices,
              std::size_t bytes);
  ~GroupMemory();
  GroupMemory(const GroupMemory&) = delete;
  GroupMemory& operator=(const GroupMemory&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return part_.front().memory.front().data; }
  /// What another member begins with; null if that is not there yet, or not `bytes` of its arena.
  [[nodiscard]] std::byte* find(int index, std::size_t bytes) const noexcept;

  /// More zeroed memory that begins at a page, of which the first `committed` bytes can be used.
  /// SystemError if memory is short.
  std::byte* add(std::size_t bytes, std::size_t committed);
  std::byte* add(std::size_t bytes) { return add(bytes, bytes); }
  /// So many bytes from there on can be used, too. SystemError if memory is short.
  void commit(const std::byte* data, std::size_t bytes) { host_.arena_.commit(data, bytes); }

 private:
  ShmHost& host_;
  ShmHost::Parts part_;  // one
};

}  // namespace lockstep::transport
