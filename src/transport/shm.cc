#include "transport/shm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <new>
#include <utility>

#include "lockstep/dtype.h"
#include "sys/pages.h"
#include "transport/damaged.h"

namespace lockstep::transport {
namespace {

using sys::kPage;
using sys::round_up;

constexpr std::size_t kMostReplicas = 256;  // of one rank

}  // namespace

struct ShmLink::Shown {
  struct Piece {
    std::uint64_t offset;  // in the segment
    std::uint64_t begin;
    std::uint64_t end;
  };
  std::uint64_t inputs;                             // how many; ordered by the board's flag
  std::array<std::uint32_t, kMostReplicas> counts;  // pieces of each input
  std::uint32_t output;                             // pieces of the output
  std::array<Piece, 1> pieces;                      // and more behind it

  static constexpr std::size_t bytes(std::size_t pieces) noexcept;
};

constexpr std::size_t ShmLink::Shown::bytes(std::size_t pieces) noexcept {
  return offsetof(Shown, pieces) + pieces * sizeof(Piece);
}

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
  std::byte* out = nullptr;    // the ring; null: none yet
  std::size_t out_usable = 0;  // bytes of it that have memory
  // From it.
  std::byte* in = nullptr;
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
      indices_(std::move(indices)),
      failure_(failure),
      staging_(host.staging()),
      stages_(indices_.size(), nullptr),
      peers_(indices_.size()) {
  for (auto& peer : peers_) peer = std::make_unique<Peer>();
  // Peers may look at it as soon as they find it: it is zeroed, as a new board is.
  memory_.emplace(host_, group, indices_, block_bytes());
  set_board(rank, std::launder(reinterpret_cast<Board*>(memory_->data())));
}

ShmLink::~ShmLink() = default;

std::size_t ShmLink::block_bytes() const noexcept {
  return sizeof(Board) + indices_.size() * sizeof(std::atomic<std::uint64_t>);
}

Board* ShmLink::find_board(int rank) const {
  if (!memory_) return nullptr;
  return reinterpret_cast<Board*>(
      memory_->find(indices_[static_cast<std::size_t>(rank)], block_bytes()));
}

// A process that has died in the middle of it never says that it is done; one that lives is done
// within a millisecond, if it has a core.
Deadline ShmLink::quiet_by(int rank) const noexcept {
  constexpr auto kAlive = std::chrono::seconds(1);
  constexpr auto kBlamed = std::chrono::milliseconds(10);
  try {
    const Status why = failure();
    const std::vector<int>& blamed = why.culprits();
    const bool is_blamed = std::find(blamed.begin(), blamed.end(), member(rank)) != blamed.end();
    return Deadline::after(is_blamed && why.kind() == ErrorKind::peer_lost ? Duration(kBlamed)
                                                                           : Duration(kAlive));
  } catch (...) {  // out of memory for the text
    return Deadline::after(kBlamed);
  }
}

bool ShmLink::has_left(int rank) const {
  if (host_.has_left(indices_[static_cast<std::size_t>(rank)])) return true;
  const Board* theirs = board(rank);
  return theirs != nullptr && theirs->ledger.left.load();
}

void ShmLink::leave() noexcept {
  if (!memory_) return;
  own().ledger.left.store(true);
  gate(rank()).notify();
}

void ShmLink::retire() noexcept {
  for (int each = 0; each < size(); ++each) set_board(each, nullptr);
  memory_.reset();
}

std::atomic<std::uint64_t>& ShmLink::ring_place(int from, int to) const noexcept {
  return reinterpret_cast<std::atomic<std::uint64_t>*>(board(from) + 1)[to];
}

std::byte* ShmLink::incoming(int from) {
  Peer& peer = *peers_[static_cast<std::size_t>(from)];
  if (peer.in != nullptr || board(from) == nullptr) return peer.in;
  const std::uint64_t offset = ring_place(from, rank()).load(std::memory_order_acquire);
  if (offset == 0) return nullptr;
  peer.in = host_.at_page(indices_[static_cast<std::size_t>(from)], offset,
                          Ring::bytes(ring_bytes(size())));
  if (peer.in == nullptr) refuse_damaged(*this, from, "shows a ring outside of its memory");
  return peer.in;
}

// Bytes go through a ring's memory from its start to its end before they come back to its start, so
// it needs no more memory than was ever sent.
Ring ShmLink::outgoing(int to, std::size_t more) {
  const std::size_t capacity = ring_bytes(size());
  Peer& peer = *peers_[static_cast<std::size_t>(to)];
  if (peer.out == nullptr) {
    peer.out = memory_->add(Ring::bytes(capacity), Ring::first_bytes(kFirstRingBytes));
    peer.out_usable = kFirstRingBytes;
    ring_place(rank(), to).store(host_.offset_of(peer.out), std::memory_order_release);
  }
  const Ring ring(peer.out, capacity);
  if (peer.out_usable == capacity) return ring;
  const std::size_t usable = usable_for(ring.used(more), peer.out_usable, capacity);
  if (usable == peer.out_usable) return ring;
  memory_->commit(peer.out, Ring::first_bytes(usable));
  peer.out_usable = usable;
  return ring;
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
  mine = memory_->add(stage_.bytes());
  own().ledger.stage.store(host_.offset_of(mine), std::memory_order_release);
}

std::byte* ShmLink::staged(int rank) {
  std::byte*& stage = stages_[static_cast<std::size_t>(rank)];
  if (stage != nullptr) return stage + slot_at_;
  const std::uint64_t offset = board(rank)->ledger.stage.load(std::memory_order_acquire);
  stage = host_.at_page(indices_[static_cast<std::size_t>(rank)], offset, stage_.bytes());
  if (stage == nullptr) refuse_damaged(*this, rank, "shows a stage outside of its memory");
  return stage + slot_at_;
}

void ShmLink::have_shown(std::size_t pieces) {
  if (shown_ != nullptr && pieces <= shown_pieces_) return;
  // Whole pages, and twice as many as before: it becomes larger a few times at most.
  const std::size_t bytes =
      round_up(Shown::bytes(std::max(pieces, std::min(2 * shown_pieces_, kMostPieces))), kPage);
  shown_ = std::launder(reinterpret_cast<Shown*>(memory_->add(bytes)));
  shown_pieces_ = (bytes - Shown::bytes(0)) / sizeof(Shown::Piece);
  own().ledger.shown.store(host_.offset_of(reinterpret_cast<std::byte*>(shown_)),
                           std::memory_order_relaxed);
}

/// What a peer shows, with room for so many pieces of its arena.
const ShmLink::Shown& ShmLink::shown_by(int peer, std::size_t pieces) const {
  const std::uint64_t offset = board(peer)->ledger.shown.load(std::memory_order_relaxed);
  const std::byte* shown =
      host_.at_page(indices_[static_cast<std::size_t>(peer)], offset, Shown::bytes(pieces));
  if (shown == nullptr) refuse_shown(peer);
  return *std::launder(reinterpret_cast<const Shown*>(shown));
}

void ShmLink::show(const Exposure& mine) {
  if (access(mine) != plan::Access::shared) return;
  std::size_t pieces = mine.output.pieces.size();
  for (const Pieces& input : mine.inputs) pieces += input.pieces.size();
  have_shown(pieces);
  Shown& shown = *shown_;
  std::size_t next = 0;
  const auto add = [&](const Pieces& buffer) {
    for (const Pieces::Piece& piece : buffer.pieces) {
      shown.pieces.data()[next++] = {host_.offset_of(piece.data), piece.begin, piece.end};
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
  // A product that overflows would look small.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 48;
  std::byte* data = elements > kMost ? nullptr
                                     : host_.at(indices_[static_cast<std::size_t>(peer)], offset,
                                                elements * width_);
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
  const Shown& shown = shown_by(peer, 1);
  /// The next buffer, whose pieces lie side by side: how many it has.
  const auto take = [&](std::size_t count) {
    if (count > kMostPieces - from.pieces.size()) refuse_shown(peer);
    const Shown::Piece* const pieces =
        shown_by(peer, std::max<std::size_t>(from.pieces.size() + count, 1)).pieces.data();
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Shown::Piece piece = pieces[from.pieces.size()];
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
    while (!peer.outgoing.empty()) {
      Peer::Outgoing& next = peer.outgoing.front();
      const auto header = std::as_bytes(std::span(&next.message, 1)).subspan(next.header_sent);
      Ring out = outgoing(to, header.size() + next.bytes.size());
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
  std::byte* const memory = incoming(from);
  if (memory == nullptr) return 0;
  Peer& peer = *peers_[static_cast<std::size_t>(from)];
  Ring in(memory, ring_bytes(size()));
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
