#include "transport/shm.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <new>
#include <utility>

#include "lockstep/dtype.h"
#include "sys/pages.h"
#include "transport/damaged.h"

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
constexpr std::size_t kMostReplicas = 256;  // of one rank
constexpr std::size_t kGroups = 1024;       // of one rank in one generation

}  // namespace

/// At the start of each arena. Written by its own rank only, but for the sleepers' count of the
/// gate.
struct ShmHost::RankHeader {
  struct Entry {
    std::atomic<std::uint64_t> group = 0;
    std::atomic<std::uint64_t> offset = 0;  // 0: none yet; orders `group`
  };
  alignas(64) Gate gate;
  alignas(64) std::atomic<bool> left = false;
  std::atomic<std::uint32_t> groups = 0;
  std::array<std::atomic<std::uint64_t>, CPU_SETSIZE / 64> cpus{};  // where the rank may run
  std::array<Entry, kGroups> directory{};
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
             arena_bytes_ - round_up(sizeof(RankHeader), kPage)) {
  raise_if_error(segment_->commit(static_cast<std::size_t>(index) * arena_bytes_,
                                  round_up(sizeof(RankHeader), kPage)));
  auto* mine = new (&header(index)) RankHeader;
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

SpinPolicy ShmHost::spin_policy() const {
  int cores = 0;
  for (std::size_t word = 0; word < CPU_SETSIZE / 64; ++word) {
    std::uint64_t together = 0;
    for (int index = 0; index < ranks_; ++index) together |= header(index).cpus[word].load();
    cores += std::popcount(together);
  }
  return SpinPolicy::for_computing_threads(ranks_, cores);
}

void ShmHost::announce(std::uint64_t group, const std::byte* at) {
  RankHeader& mine = header(index_);
  const std::uint32_t number = mine.groups.fetch_add(1);
  if (number >= kGroups) {
    throw SystemError("a rank can be in 1024 groups of one generation at most; split less often");
  }
  mine.directory[number].group.store(group, std::memory_order_relaxed);
  mine.directory[number].offset.store(offset_of(at), std::memory_order_release);
  mine.gate.notify();
}

std::byte* ShmHost::find(int index, std::uint64_t group, std::size_t bytes) const noexcept {
  for (const RankHeader::Entry& entry : header(index).directory) {
    const std::uint64_t offset = entry.offset.load(std::memory_order_acquire);
    if (offset == 0) return nullptr;
    if (entry.group.load(std::memory_order_relaxed) != group) continue;
    return offset % kPage == 0 ? at(index, offset, bytes) : nullptr;
  }
  return nullptr;
}

std::byte* ShmHost::at(int index, std::uint64_t offset, std::uint64_t bytes) const noexcept {
  const std::uint64_t begin = static_cast<std::uint64_t>(index) * arena_bytes_;
  const std::uint64_t first = begin + round_up(sizeof(RankHeader), kPage);
  if (offset < first || bytes > arena_bytes_ || offset - begin > arena_bytes_ - bytes) {
    return nullptr;
  }
  return segment_->data() + offset;
}

struct ShmLink::Shown {
  struct Piece {
    std::uint64_t offset;  // in the segment
    std::uint64_t begin;
    std::uint64_t end;
  };
  std::uint64_t inputs;                             // how many; ordered by the board's flag
  std::array<std::uint32_t, kMostReplicas> counts;  // pieces of each input
  std::uint32_t output;                             // pieces of the output
  std::array<Piece, kMostPieces> pieces;
};

struct ShmLink::Message {
  std::uint64_t fingerprint;
  std::uint64_t length;
};

struct ShmLink::Peer {
  // To it.
  struct Outgoing {
    Message message;
    std::size_t header_sent = 0;
    std::span<const std::byte> bytes;
  };
  std::deque<Outgoing> outgoing;
  // From it.
  Message message{};
  std::size_t header_received = 0;
  std::uint64_t left = 0;  // of the message in progress
  // What it exposes, as read in operation `read_in`.
  std::uint64_t read_in = 0;
  std::vector<Pieces::Piece> pieces;
  std::vector<Pieces> inputs;
  Exposure exposure;
};

ShmLink::ShmLink(ShmHost& host, std::uint64_t group, std::vector<int> members,
                 std::vector<int> indices, int rank, Failure& failure)
    : BoardLink(
          std::move(members), rank,
          [&] {
            std::vector<Gate*> gates;
            for (const int index : indices) gates.push_back(&host.gate(index));
            return gates;
          }(),
          failure, host.spin_policy()),
      host_(host),
      group_(group),
      indices_(std::move(indices)),
      failure_(failure),
      stages_(indices_.size(), nullptr),
      peers_(indices_.size()) {
  for (auto& peer : peers_) peer = std::make_unique<Peer>();
  std::byte* block = host_.reserve(block_bytes());
  set_board(rank, new (block) Board);
  host_.announce(group_, block);
}

ShmLink::~ShmLink() = default;

std::size_t ShmLink::block_bytes() const noexcept {
  const std::size_t rings = indices_.size() * Ring::bytes(ring_bytes(size()));
  return sizeof(Board) + round_up(sizeof(Shown), 64) + rings;
}

Board* ShmLink::find_board(int rank) const {
  return reinterpret_cast<Board*>(
      host_.find(indices_[static_cast<std::size_t>(rank)], group_, block_bytes()));
}

bool ShmLink::has_left(int rank) const {
  if (host_.has_left(indices_[static_cast<std::size_t>(rank)])) return true;
  const Board* theirs = board(rank);
  return theirs != nullptr && theirs->ledger.left.load();
}

void ShmLink::leave() noexcept {
  own().ledger.left.store(true);
  gate(rank()).notify();
}

ShmLink::Shown& ShmLink::shown_by(int rank) const noexcept {
  return *reinterpret_cast<Shown*>(board(rank) + 1);
}

Ring ShmLink::ring(int from, int to) const noexcept {
  const std::size_t capacity = ring_bytes(size());
  return {reinterpret_cast<std::byte*>(&shown_by(from)) + round_up(sizeof(Shown), 64) +
              static_cast<std::size_t>(to) * Ring::bytes(capacity),
          capacity};
}

plan::Access ShmLink::access(const Exposure& mine) const noexcept {
  std::size_t pieces = 0;
  const auto reachable = [&](const Pieces& buffer) {
    pieces += buffer.pieces.size();
    return std::all_of(buffer.pieces.begin(), buffer.pieces.end(), [&](const Pieces::Piece& piece) {
      // The width is not known here; the first byte of a piece of the arena is enough, since
      // pieces of other memory do not begin there.
      return piece.begin == piece.end || host_.reaches(piece.data, 1);
    });
  };
  const bool all = std::all_of(mine.inputs.begin(), mine.inputs.end(), reachable) &&
                   reachable(mine.output) && pieces <= kMostPieces &&
                   mine.inputs.size() <= kMostReplicas;
  return all ? plan::Access::shared : plan::Access::slots;
}

int ShmLink::begin(const wire::Descriptor& descriptor, const Exposure& mine, std::size_t slot) {
  if (slot > Desk::kBytes) have_stage();
  if (const int late = BoardLink::begin(descriptor, mine, slot); late != kNobody) return late;
  mine_ = &mine;
  operation_ = descriptor.sequence;
  width_ = descriptor.dtype < kDTypeCount ? size_of(static_cast<DType>(descriptor.dtype)) : 0;
  if (slot == 0) show(mine);
  if (slot > Desk::kBytes) slot_at_ = stage_.next(slot);
  return kNobody;
}

// Most groups never need one, so it is made when it is needed.
void ShmLink::have_stage() {
  std::byte*& mine = stages_[static_cast<std::size_t>(rank())];
  if (mine != nullptr) return;
  mine = host_.reserve(stage_.bytes());
  own().ledger.stage.store(host_.offset_of(mine), std::memory_order_release);
}

std::byte* ShmLink::staged(int rank) {
  std::byte*& stage = stages_[static_cast<std::size_t>(rank)];
  if (stage != nullptr) return stage + slot_at_;
  const std::uint64_t offset = board(rank)->ledger.stage.load(std::memory_order_acquire);
  if (offset % kPage == 0) {
    stage = host_.at(indices_[static_cast<std::size_t>(rank)], offset, stage_.bytes());
  }
  if (stage == nullptr) refuse_damaged(*this, rank, "shows a stage outside of its memory");
  return stage + slot_at_;
}

void ShmLink::show(const Exposure& mine) noexcept {
  if (access(mine) != plan::Access::shared) return;
  Shown& shown = shown_by(rank());
  std::size_t next = 0;
  const auto add = [&](const Pieces& buffer) {
    for (const Pieces::Piece& piece : buffer.pieces) {
      shown.pieces[next++] = {host_.offset_of(piece.data), piece.begin, piece.end};
    }
    return static_cast<std::uint32_t>(buffer.pieces.size());
  };
  shown.inputs = mine.inputs.size();
  for (std::size_t i = 0; i < mine.inputs.size(); ++i) shown.counts[i] = add(mine.inputs[i]);
  shown.output = add(mine.output);
}

std::byte* ShmLink::piece_of(int peer, std::uint64_t offset, std::uint64_t elements) const {
  // Pieces of nothing may lie anywhere; nobody looks.
  if (elements == 0) return nullptr;
  std::byte* data = elements > kArenaBytes ? nullptr
                                           : host_.at(indices_[static_cast<std::size_t>(peer)],
                                                      offset, elements * width_);
  if (data == nullptr) refuse_shown(peer);
  return data;
}

void ShmLink::refuse_shown(int peer) const {
  refuse_damaged(*this, peer, "shows a buffer outside of its memory");
}

// Copied once and checked: what a peer writes later, or wrote wrongly, leads nowhere else.
const Exposure& ShmLink::exposed(int peer) {
  if (peer == rank()) return *mine_;
  Peer& from = *peers_[static_cast<std::size_t>(peer)];
  if (from.read_in == operation_) return from.exposure;
  from.pieces.clear();
  const Shown& shown = shown_by(peer);
  /// The next buffer, whose pieces lie side by side: how many it has.
  const auto take = [&](std::size_t count) {
    if (count > kMostPieces - from.pieces.size()) refuse_shown(peer);
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Shown::Piece piece = shown.pieces[from.pieces.size()];
      if (piece.begin != begin || piece.end < begin) refuse_shown(peer);
      begin = piece.end;
      from.pieces.push_back(
          {piece_of(peer, piece.offset, piece.end - piece.begin), piece.begin, piece.end});
    }
    return count;
  };
  std::array<std::size_t, kMostReplicas> counts{};
  const std::size_t inputs = std::min<std::size_t>(shown.inputs, kMostReplicas);
  for (std::size_t i = 0; i < inputs; ++i) counts[i] = take(shown.counts[i]);
  const std::size_t output = take(shown.output);

  std::size_t first = 0;
  const auto next = [&](std::size_t count) {
    const Pieces buffer{std::span(from.pieces).subspan(first, count)};
    first += count;
    return buffer;
  };
  from.inputs.clear();
  for (std::size_t i = 0; i < inputs; ++i) from.inputs.push_back(next(counts[i]));
  from.exposure = {from.inputs, next(output)};
  from.read_in = operation_;
  return from.exposure;
}

int ShmLink::end() {
  flush();
  return unsent_.empty() ? kNobody : unsent_.front();
}

void ShmLink::send(int to, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  Peer& peer = *peers_[static_cast<std::size_t>(to)];
  if (peer.outgoing.empty()) unsent_.push_back(to);
  peer.outgoing.push_back({.message = {fingerprint(), bytes.size()}, .bytes = bytes});
  flush();
}

bool ShmLink::drained(int to) {
  flush();
  return peers_[static_cast<std::size_t>(to)]->outgoing.empty();
}

std::uint64_t ShmLink::unsent() const noexcept {
  std::uint64_t bytes = 0;
  for (const int to : unsent_) {
    for (const Peer::Outgoing& each : peers_[static_cast<std::size_t>(to)]->outgoing) {
      bytes += each.bytes.size();
    }
  }
  return bytes;
}

void ShmLink::flush() {
  bool moved = false;
  std::erase_if(unsent_, [&](int to) {
    Peer& peer = *peers_[static_cast<std::size_t>(to)];
    Ring out = ring(rank(), to);
    while (!peer.outgoing.empty()) {
      Peer::Outgoing& next = peer.outgoing.front();
      const auto header = std::as_bytes(std::span(&next.message, 1)).subspan(next.header_sent);
      const std::size_t sent = header.empty() ? 0 : out.write(header);
      next.header_sent += sent;
      const std::size_t body = sent == header.size() ? out.write(next.bytes) : 0;
      next.bytes = next.bytes.subspan(body);
      moved = moved || sent + body > 0;
      if (next.header_sent < sizeof(Message) || !next.bytes.empty()) return false;
      peer.outgoing.pop_front();
    }
    return true;
  });
  if (moved) gate(rank()).notify();
}

std::size_t ShmLink::receive(int from, std::span<std::byte> bytes) {
  if (failed()) return 0;
  flush();
  if (board(from) == nullptr) return 0;
  Peer& peer = *peers_[static_cast<std::size_t>(from)];
  Ring in = ring(from, rank());
  std::size_t moved = 0;
  while (moved < bytes.size()) {
    if (peer.left == 0) {
      const auto header = std::as_writable_bytes(std::span(&peer.message, 1));
      peer.header_received += in.read(header.subspan(peer.header_received));
      if (peer.header_received < sizeof(Message)) break;
      if (peer.message.fingerprint != fingerprint()) {
        notice_disagreement();
        break;
      }
      peer.header_received = 0;
      peer.left = peer.message.length;
      continue;
    }
    const std::size_t now =
        in.read(bytes.subspan(moved, std::min<std::size_t>(bytes.size() - moved, peer.left)));
    if (now == 0) break;
    moved += now;
    peer.left -= now;
  }
  if (moved > 0) gate(rank()).notify();
  return moved;
}

}  // namespace lockstep::transport
