// ShmHost: one rank's view of the segment that the ranks of its host share. Each rank has an arena
// there, which begins with a header: the rank's gate, and a directory of the groups it is in.
//
//   auto segment = std::make_shared<sys::Segment>(...);   // made by one, mapped by all
//   ShmHost host(segment, /*index=*/0, /*ranks=*/2);
//   GroupMemory part(host, group, {0, 1}, bytes);         // group_memory.h
//
// When a group's memory goes back. A member that closes its GroupMemory marks its entry in its own
// directory as closed and keeps the memory.
//   1. A member that has closed looks for the marks of the others, and counts itself in each entry
//      it has found marked. It looks whenever it opens or closes a group, or needs memory.
//   2. Once it has seen all marks, nobody reads its memory any more: it frees it.
//   3. Once all others are counted in its entry, nobody looks for its mark any more: it frees the
//      entry.
// A rank that has left the host counts as closed. What it had closed itself stays until the last
// process is gone: nobody looks for it.
//
// Before a rank takes memory it says in its header how much, and looks whether there is enough for
// what all ranks are about to take: each by itself might find enough, and all be killed together.
//
// Thread rule: any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/gate.h"
#include "base/mutex.h"
#include "plan/staging.h"
#include "sys/segment.h"
#include "transport/arena.h"

namespace lockstep::transport {

class ShmHost {
 public:
  /// Groups that a rank can be in at once.
  static constexpr std::size_t kMostGroups = 1024;

  /// The room a segment for so many ranks must have.
  static std::size_t segment_bytes(int ranks);

  /// `index` is this rank's among the host's `ranks`. SystemError if memory is short.
  ShmHost(std::shared_ptr<sys::Segment> segment, int index, int ranks);
  ~ShmHost();
  ShmHost(const ShmHost&) = delete;
  ShmHost& operator=(const ShmHost&) = delete;

  [[nodiscard]] int index() const noexcept { return index_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// Where others sleep while they wait for that rank.
  Gate& gate(int index) noexcept;
  /// Wakes whoever sleeps in this segment, to look again.
  void wake_all() noexcept;
  /// This rank takes part in nothing more.
  void leave() noexcept;
  [[nodiscard]] bool has_left(int index) const noexcept;
  /// How long to poll: all ranks of the host and all their cores counted. Ask once all ranks have
  /// made their ShmHost.
  [[nodiscard]] SpinPolicy spin_policy() const;
  /// Processors that any rank of the host may use. Ask as late.
  [[nodiscard]] int cores() const noexcept;

  /// How the links made from now on stage; the ranks of the host have agreed on it.
  void set_staging(const plan::Staging& staging) noexcept { staging_ = staging; }
  [[nodiscard]] plan::Staging staging() const noexcept { return staging_; }

  /// Bytes that this rank is about to take, which the others do not count as free. A claim of a
  /// process that has ended counts no more.
  class Claim {
   public:
    explicit Claim(ShmHost& host) noexcept : host_(host) {}
    ~Claim() { set(0); }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    void set(std::size_t bytes) noexcept;

   private:
    ShmHost& host_;
    std::size_t bytes_ = 0;
  };

  /// Memory that the host's ranks can reach.
  std::shared_ptr<std::byte> allocate(std::size_t bytes);
  [[nodiscard]] bool reaches(const std::byte* data, std::size_t bytes) const noexcept {
    return arena_.contains(data, bytes);
  }
  /// Where memory of this host lies in the segment; what peers are told.
  [[nodiscard]] std::uint64_t offset_of(const std::byte* data) const noexcept {
    return static_cast<std::uint64_t>(data - segment_->data());
  }
  /// Null unless `bytes` from the offset on lie in that rank's arena.
  [[nodiscard]] std::byte* at(int index, std::uint64_t offset, std::uint64_t bytes) const noexcept;
  /// The same for memory that begins at a page, as all that a group has does.
  [[nodiscard]] std::byte* at_page(int index, std::uint64_t offset,
                                   std::uint64_t bytes) const noexcept;
  /// What that rank's GroupMemory of the group begins with; null if there is none yet, or not
  /// `bytes` of its arena.
  [[nodiscard]] std::byte* find(int index, std::uint64_t group, std::size_t bytes) const noexcept;

 private:
  friend class GroupMemory;
  struct Entry;
  struct RankHeader;
  /// What this rank shares with the members of a group.
  struct Member {
    int index = 0;
    Entry* entry = nullptr;  // null: not found yet; it stays there until this rank is counted in it
  };
  struct Part {
    std::uint64_t group = 0;
    std::vector<Arena::Block> memory;
    std::vector<Member> open;  // the others that have not closed theirs, as far as is known
    std::size_t others = 0;
    std::size_t place = 0;  // in the directory
  };
  using Parts = std::list<Part>;  // a node moves without an allocation

  [[nodiscard]] RankHeader& header(int index) const noexcept;
  /// Enters the part, whose memory begins with what peers are to find, in the directory.
  /// SystemError if it is full.
  void announce(Part& part);
  /// The part of `closed`, one node, is this rank's no more; its memory goes when nobody needs it.
  void close(Parts closed) noexcept;
  /// Frees what the others have closed, too.
  void collect() noexcept;
  /// Whether that member has closed the group; told once, since it is counted there.
  bool sees_closed(Member& member, std::uint64_t group) noexcept;
  /// Segment::commit(), in agreement with the other ranks.
  Status commit(std::size_t offset, std::size_t bytes);
  /// Bytes that ranks which are alive are about to take, this one included.
  [[nodiscard]] std::size_t claimed() const noexcept;
  [[nodiscard]] Entry* entry(int index, std::uint64_t group) const noexcept;

  std::shared_ptr<sys::Segment> segment_;
  std::size_t arena_bytes_;
  int index_;
  int ranks_;
  Arena arena_;
  plan::Staging staging_;
  Mutex mutex_;
  std::array<bool, kMostGroups> taken_ GUARDED_BY(mutex_) = {};  // places of the directory
  Parts closed_ GUARDED_BY(mutex_);                              // some member may still use them
  Parts freed_ GUARDED_BY(mutex_);  // without memory; some member may still look for the mark
};

}  // namespace lockstep::transport
