#include "transport/shm_host.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <new>
#include <utility>

#include "sys/pages.h"
#include "sys/posix_proc.h"
#include "sys/topology.h"

namespace lockstep::transport {
namespace {

using sys::kHugePage;
using sys::kPage;
using sys::round_up;

/// Room, not memory: what a rank could ever want to share. Not a power of two: an AMD core finds a
/// line in its first cache by a hash of the low address bits, and ranks' buffers that lie alike in
/// arenas 64 GiB apart would drive each other out with every access (a sum of two 1 MiB: 87 us
/// instead of 13).
constexpr std::size_t kArenaBytes = (std::size_t{64} << 30) + kHugePage;

}  // namespace

/// Written by its own rank only, but for `seen`. Free while `offset` is 0.
struct ShmHost::Entry {
  std::atomic<std::uint64_t> group = 0;
  std::atomic<std::uint64_t> offset = 0;  // orders the others
  std::atomic<std::uint32_t> closed = 0;
  std::atomic<std::uint32_t> seen = 0;  // members that have closed theirs and know of `closed`
};

/// At the start of each arena. Written by its own rank only, but for the sleepers' count of the
/// gate and what the others count in the directory.
struct ShmHost::RankHeader {
  alignas(64) Gate gate;
  alignas(64) std::atomic<bool> left = false;
  std::atomic<std::uint32_t> places = 0;  // of the directory that were ever used
  std::atomic<std::int32_t> pid = 0;
  std::atomic<std::uint64_t> claimed = 0;  // bytes that it is about to take
  std::array<std::atomic<std::uint64_t>, CPU_SETSIZE / 64> cpus{};  // where the rank may run
  std::array<Entry, kMostGroups> directory{};
};

std::size_t ShmHost::segment_bytes(int ranks) {
  return static_cast<std::size_t>(ranks) * kArenaBytes;
}

ShmHost::ShmHost(std::shared_ptr<sys::Segment> segment, int index, int ranks)
    : segment_(std::move(segment)),
      arena_bytes_(segment_->size() / static_cast<std::size_t>(ranks)),
      index_(index),
      ranks_(ranks),
      arena_(segment_,
             static_cast<std::size_t>(index) * arena_bytes_ + round_up(sizeof(RankHeader), kPage),
             arena_bytes_ - round_up(sizeof(RankHeader), kPage),
             [this](std::size_t offset, std::size_t bytes) { return commit(offset, bytes); }) {
  raise_if_error(segment_->commit(static_cast<std::size_t>(index) * arena_bytes_,
                                  round_up(sizeof(RankHeader), kPage)));
  auto* mine = new (&header(index)) RankHeader;
  mine->pid.store(::getpid());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) mine->cpus[cpu / 64].fetch_or(std::uint64_t{1} << (cpu % 64));
    }
  }
}

ShmHost::~ShmHost() = default;

ShmHost::RankHeader& ShmHost::header(int index) const noexcept {
  return *std::launder(reinterpret_cast<RankHeader*>(
      segment_->data() + static_cast<std::size_t>(index) * arena_bytes_));
}

Gate& ShmHost::gate(int index) noexcept { return header(index).gate; }

void ShmHost::wake_all() noexcept {
  for (int index = 0; index < ranks_; ++index) gate(index).notify();
}

void ShmHost::leave() noexcept {
  header(index_).left.store(true);
  gate(index_).notify();
}

bool ShmHost::has_left(int index) const noexcept { return header(index).left.load(); }

int ShmHost::cores() const noexcept {
  int cores = 0;
  for (std::size_t word = 0; word < CPU_SETSIZE / 64; ++word) {
    std::uint64_t together = 0;
    for (int index = 0; index < ranks_; ++index) together |= header(index).cpus[word].load();
    cores += std::popcount(together);
  }
  return cores;
}

SpinPolicy ShmHost::spin_policy() const {
  return SpinPolicy::for_computing_threads(ranks_,
                                           sys::usable_processors(cores(), sys::own_cpu_quota()));
}

Status ShmHost::commit(std::size_t offset, std::size_t bytes) {
  Claim claim(*this);
  return segment_->commit(offset, bytes, [&](std::size_t left) {
    claim.set(left);
    const std::size_t all = claimed();
    return all - std::min(all, left);
  });
}

void ShmHost::Claim::set(std::size_t bytes) noexcept {
  // Sequentially consistent: of two ranks that do this at once, one sees the other.
  host_.header(host_.index_).claimed.fetch_add(bytes - bytes_);
  bytes_ = bytes;
}

std::size_t ShmHost::claimed() const noexcept {
  std::size_t sum = 0;
  for (int index = 0; index < ranks_; ++index) {
    const RankHeader& each = header(index);
    const std::uint64_t bytes = each.claimed.load();
    // One that was killed meanwhile takes nothing more.
    if (bytes == 0 || (index != index_ && !sys::is_running(each.pid.load()))) continue;
    sum += std::min<std::uint64_t>(bytes, SIZE_MAX - sum);
  }
  return sum;
}

std::shared_ptr<std::byte> ShmHost::allocate(std::size_t bytes) {
  collect();
  return arena_.allocate(bytes);
}

std::byte* ShmHost::at(int index, std::uint64_t offset, std::uint64_t bytes) const noexcept {
  const std::uint64_t begin = static_cast<std::uint64_t>(index) * arena_bytes_;
  const std::uint64_t first = begin + round_up(sizeof(RankHeader), kPage);
  if (offset < first || bytes > arena_bytes_ || offset - begin > arena_bytes_ - bytes) {
    return nullptr;
  }
  return segment_->data() + offset;
}

std::byte* ShmHost::at_page(int index, std::uint64_t offset, std::uint64_t bytes) const noexcept {
  return offset % kPage == 0 ? at(index, offset, bytes) : nullptr;
}

ShmHost::Entry* ShmHost::entry(int index, std::uint64_t group) const noexcept {
  RankHeader& theirs = header(index);
  const std::size_t places =
      std::min<std::size_t>(theirs.places.load(std::memory_order_acquire), kMostGroups);
  for (std::size_t place = 0; place < places; ++place) {
    Entry& each = theirs.directory[place];
    const std::uint64_t offset = each.offset.load(std::memory_order_acquire);
    if (offset == 0 || each.group.load(std::memory_order_acquire) != group) continue;
    // A place that is used again has no offset before it has another group: the same offset before
    // and after is this group's.
    if (each.offset.load(std::memory_order_acquire) == offset) return &each;
  }
  return nullptr;
}

void ShmHost::announce(Part& part) {
  RankHeader& mine = header(index_);
  {
    const MutexLock lock(mutex_);
    const auto free = std::find(taken_.begin(), taken_.end(), false);
    if (free == taken_.end()) {
      throw SystemError(fmt::format(
          "a rank can be in {} groups at once; close sessions that are not needed", kMostGroups));
    }
    *free = true;
    part.place = static_cast<std::size_t>(free - taken_.begin());
    Entry& entry = mine.directory[part.place];
    entry.closed.store(0, std::memory_order_relaxed);
    entry.seen.store(0, std::memory_order_relaxed);
    entry.group.store(part.group, std::memory_order_release);
    entry.offset.store(offset_of(part.memory.front().data), std::memory_order_release);
    const auto places = static_cast<std::uint32_t>(part.place + 1);
    if (mine.places.load() < places) mine.places.store(places);
  }
  mine.gate.notify();
}

void ShmHost::close(Parts closed) noexcept {
  header(index_).directory[closed.front().place].closed.store(1, std::memory_order_release);
  {
    const MutexLock lock(mutex_);
    closed_.splice(closed_.end(), closed);
  }
  collect();
}

void ShmHost::collect() noexcept {
  Parts unused;
  {
    const MutexLock lock(mutex_);
    for (auto at = closed_.begin(); at != closed_.end();) {
      const auto part = at++;
      std::erase_if(part->open, [&](Member& member) { return sees_closed(member, part->group); });
      if (part->open.empty()) unused.splice(unused.end(), closed_, part);
    }
  }
  for (Part& part : unused) {
    for (const Arena::Block& block : part.memory) arena_.free(block);  // a system call each
    part.memory.clear();
  }
  const MutexLock lock(mutex_);
  freed_.splice(freed_.end(), unused);
  std::erase_if(freed_, [&](const Part& part) REQUIRES(mutex_) {
    Entry& mine = header(index_).directory[part.place];
    if (mine.seen.load(std::memory_order_acquire) < part.others) return false;
    mine.offset.store(0, std::memory_order_release);
    taken_[part.place] = false;
    return true;
  });
}

bool ShmHost::sees_closed(Member& member, std::uint64_t group) noexcept {
  if (has_left(member.index)) return true;
  if (member.entry == nullptr) member.entry = entry(member.index, group);
  Entry* const theirs = member.entry;
  if (theirs == nullptr || theirs->closed.load(std::memory_order_acquire) == 0) return false;
  theirs->seen.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

std::byte* ShmHost::find(int index, std::uint64_t group, std::size_t bytes) const noexcept {
  const Entry* const theirs = entry(index, group);
  if (theirs == nullptr) return nullptr;
  return at_page(index, theirs->offset.load(std::memory_order_acquire), bytes);
}

}  // namespace lockstep::transport
