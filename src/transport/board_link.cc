#include "transport/board_link.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

#include "transport/mismatch.h"

namespace lockstep::transport {
namespace {

constexpr std::uint64_t stamp(std::uint64_t sequence, std::uint32_t stage) noexcept {
  return (sequence << 16) | stage;
}

/// How long a rank that has seen a disagreement waits for the others' requests before it reports.
constexpr std::chrono::milliseconds kPatience{100};

}  // namespace

BoardLink::BoardLink(std::vector<int> members, int rank, std::vector<Gate*> gates, Failure& failure,
                     SpinPolicy spin, std::size_t slot_bytes)
    : members_(std::move(members)),
      rank_(rank),
      gates_(std::move(gates)),
      boards_(members_.size(), nullptr),
      failure_(failure),
      spin_(spin),
      slot_bytes_(slot_bytes),
      agreed_(members_.size(), 0) {}

Board* BoardLink::look_up(int rank) const {
  Board* found = find_board(rank);
  set_board(rank, found);
  return found;
}

int BoardLink::begin(const wire::Descriptor& descriptor, const Exposure& mine, Staging staging) {
  // Looking at every rank costs a cache line each, so only now and then.
  const bool look = descriptor.sequence % kLookEvery == 0;
  if (look && descriptor.sequence > kMaxLead) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      const Board* theirs = board(peer);
      if (theirs == nullptr ||
          theirs->ledger.begun.load(std::memory_order_acquire) < descriptor.sequence - kMaxLead) {
        return peer;
      }
    }
  }
  Board& mine_shown = own();
  sequence_ = descriptor.sequence;
  fingerprint_ = wire::fingerprint(descriptor);
  staging_ = staging;
  disagreed_ = false;
  if (staging != Staging::none) ++slot_operations_;
  mine_shown.plain.exposure = &mine;
  mine_shown.ledger.entries[sequence_ % kLedger].write(descriptor);
  mine_shown.ledger.begun.store(sequence_, std::memory_order_release);
  if (look) gate(rank_).notify();  // somebody ahead may wait for just this
  return kNobody;
}

void BoardLink::publish(std::uint32_t stage) {
  Flag& flag =
      staging_ != Staging::none ? own().desk(slot_operations_, slot_bytes_).flag : own().plain.flag;
  flag.fingerprint.store(fingerprint_, std::memory_order_relaxed);
  flag.stamp.store(stamp(sequence_, stage), std::memory_order_release);
  gate(rank_).notify();
}

bool BoardLink::reached(int peer, std::uint32_t stage) {
  Board* theirs = board(peer);
  if (theirs == nullptr) return false;
  if (staging_ != Staging::none) {
    const Flag& flag = theirs->desk(slot_operations_, slot_bytes_).flag;
    if (flag.stamp.load(std::memory_order_acquire) < stamp(sequence_, stage)) return false;
    // The desk keeps this operation's fingerprint until the next but one slot operation, so it can
    // be compared without looking into the ledger.
    if (flag.fingerprint.load(std::memory_order_relaxed) == fingerprint_) return true;
    notice_disagreement();
    return false;
  }
  if (theirs->plain.flag.stamp.load(std::memory_order_acquire) < stamp(sequence_, stage))
    return false;
  return agrees(peer);
}

std::byte* BoardLink::slot(int peer) {
  return board(peer)->desk(slot_operations_, slot_bytes_).data(staging_);
}

bool BoardLink::spin(FunctionRef<bool()> done) {
  return Gate::poll([&] { return done() || failed(); }, spin_);
}

bool BoardLink::wait(int peer, FunctionRef<bool()> done, Deadline deadline) {
  // Once something is reported there is nothing to wait for but the ranks' agreement on it.
  const auto over = [&] { return done() || failed(); };
  if (failure_.proposed()) return gate(peer).wait([&] { return failed(); }, deadline);
  // Let peers that sleep look at what we asked for.
  gate(rank_).notify();
  const auto over_or_hopeless = [&] {
    if (over() || disagreed_ || disagrees(peer)) return true;
    if (!has_left(peer)) return false;
    // What it did before it left counts, so look once more after having seen it leave.
    if (!over()) report_left(peer);
    return true;
  };
  const bool in_time = gate(peer).wait(over_or_hopeless, deadline);
  if (!disagreed_ || failed()) return in_time;
  // The table is worth a moment: those still on their way will ask for something, too.
  const Deadline patience = earlier(deadline, Deadline::after(kPatience));
  for (const int late : missing()) {
    const auto arrived = [&] { return has_arrived(late) || failed(); };
    gate(late).wait(arrived, patience);
  }
  report_mismatch();
  return true;
}

void BoardLink::await_verdict() noexcept {
  constexpr auto kLongest = std::chrono::seconds(10);
  gate(rank_).wait([&] { return failed(); }, Deadline::after(kLongest));
}

bool BoardLink::has_arrived(int peer) const {
  const Board* theirs = board(peer);
  return theirs != nullptr && theirs->ledger.begun.load(std::memory_order_acquire) >= sequence_;
}

std::vector<int> BoardLink::missing() const {
  std::vector<int> ranks;
  for (int peer = 0; peer < size(); ++peer) {
    if (!has_arrived(peer)) ranks.push_back(peer);
  }
  return ranks;
}

bool BoardLink::agrees(int peer) {
  if (agreed_[static_cast<std::size_t>(peer)] == sequence_) return true;
  if (disagrees(peer)) return false;
  agreed_[static_cast<std::size_t>(peer)] = sequence_;
  return true;
}

bool BoardLink::disagrees(int peer) {
  const Board* theirs = board(peer);
  if (theirs == nullptr) return false;
  const auto request = theirs->request(sequence_);
  if (!request || wire::fingerprint(*request) == fingerprint_) return false;
  notice_disagreement();
  return true;
}

void BoardLink::notice_disagreement() {
  disagreed_ = true;
  if (missing().empty()) report_mismatch();
}

void BoardLink::report_left(int peer) {
  const auto request = own().request(sequence_);
  fail({ErrorKind::peer_lost,
        Code::unavailable,
        fmt::format("rank {} has left the group (its session was closed), but rank {} needs it for "
                    "operation {}: {}",
                    member(peer), member(rank_), sequence_,
                    request ? wire::describe(*request) : "?"),
        {member(peer)}});
}

void BoardLink::report_mismatch() {
  // Bytes that nobody took show a disagreement only later: report the operation it began with.
  Status why;
  for (std::uint64_t at = sequence_ > kMaxLead ? sequence_ - kMaxLead : 1; at <= sequence_; ++at) {
    std::vector<std::optional<wire::Descriptor>> rows(static_cast<std::size_t>(size()));
    for (int rank = 0; rank < size(); ++rank) {
      if (const Board* theirs = board(rank)) {
        rows[static_cast<std::size_t>(rank)] = theirs->request(at);
      }
    }
    why = mismatch(at, rows, members_);
    if (!why.culprits().empty()) break;
  }
  fail(why);
}

}  // namespace lockstep::transport
