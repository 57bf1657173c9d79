#include "transport/board_link.h"

#include <fmt/format.h>

#include <cassert>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "base/cache_line.h"
#include "transport/left_group.h"
#include "transport/mismatch.h"

namespace lockstep::transport {
namespace {

constexpr std::uint64_t stamp(std::uint64_t sequence, std::uint32_t stage) noexcept {
  assert(stage < plan::kStages);
  return (sequence << plan::kStageBits) | stage;
}

/// Whether a rank looks at the others' progress in that operation.
constexpr bool looks(std::uint64_t sequence) noexcept { return sequence % kLookEvery == 0; }

/// Slots of so many bytes are claimed ahead; with more, what is claimed too early costs more than
/// it saves.
constexpr std::size_t kClaimed = 512;

/// How long a rank that has seen a disagreement waits for the others' requests before it reports.
constexpr std::chrono::milliseconds kPatience{100};

}  // namespace

BoardLink::BoardLink(std::vector<int> members, int rank, std::vector<Gate*> gates, Failure& failure,
                     SpinPolicy spin)
    : members_(std::move(members)),
      rank_(rank),
      gates_(std::move(gates)),
      boards_(members_.size()),
      failure_(failure),
      spin_(spin),
      agreed_(members_.size(), 0) {}

Board* BoardLink::look_up(int rank) const {
  Board* found = find_board(rank);
  if (found == nullptr) return nullptr;
  // It may have failed before it could find this rank's board: see quiesce(). Adding nothing orders
  // the two.
  if (found->halted.fetch_add(0) != 0) own().halted.store(1);
  set_board(rank, found);
  return found;
}

int BoardLink::laggard(std::uint64_t sequence) const {
  // Looking at every rank costs a cache line each, so only now and then.
  if (!looks(sequence) || sequence <= kMaxLead) return kNobody;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    const Board* theirs = board(peer);
    if (theirs == nullptr ||
        theirs->ledger.begun.load(std::memory_order_acquire) < sequence - kMaxLead) {
      return peer;
    }
  }
  return kNobody;
}

void BoardLink::enter_operation(const wire::Descriptor& descriptor, std::size_t slot) {
  sequence_ = descriptor.sequence;
  fingerprint_ = wire::fingerprint(descriptor);
  slot_ = slot;
  disagreed_ = false;
  other_minded_ = kNobody;
  if (slot > 0) ++slot_operations_;
}

void BoardLink::enter_in_ledger(const wire::Descriptor& descriptor) {
  Board::Ledger& ledger = own().ledger;
  ledger.entries[sequence_ % kLedger].write(descriptor, descriptor.used_bytes());
  ledger.begun.store(sequence_, std::memory_order_release);
}

void BoardLink::raise_flag(std::uint32_t stage) {
  Flag& flag = flag_of(own());
  flag.fingerprint.store(fingerprint_, std::memory_order_relaxed);
  flag.stamp.store(stamp(sequence_, stage), std::memory_order_release);
}

int BoardLink::begin(const wire::Descriptor& descriptor, const Exposure& mine, std::size_t slot) {
  if (const int late = laggard(descriptor.sequence); late != kNobody) return late;
  enter_operation(descriptor, slot);
  own().plain.exposure = &mine;
  enter_in_ledger(descriptor);
  if (looks(sequence_)) gate(rank_).notify();  // somebody ahead may wait for just this
  return kNobody;
}

int BoardLink::offer(const wire::Descriptor& descriptor, std::size_t slot,
                     std::span<const std::byte> data, std::uint32_t stage) {
  assert(slot <= kMostOffered && data.size() <= slot);
  if (const int late = laggard(descriptor.sequence); late != kNobody) return late;
  enter_operation(descriptor, slot);
  std::memcpy(BoardLink::slot(rank_), data.data(), data.size());
  raise_flag(stage);
  // While the data is on its way: the next operation may be like this one, and its desk has been
  // read by everybody who is as far as we are.
  if (slot <= kClaimed) {
    const Desk& next = own().desks[(slot_operations_ + 1) % plan::kSlots];
    claim_lines(reinterpret_cast<const std::byte*>(&next), offsetof(Desk, behind));
    if (slot > Desk::kWithFlag) claim_lines(next.behind.data(), slot);
  }
  // The flag says what the data belongs to; the ledger is for reports.
  enter_in_ledger(descriptor);
  gate(rank_).notify();
  return kNobody;
}

void BoardLink::publish(std::uint32_t stage) {
  raise_flag(stage);
  gate(rank_).notify();
}

bool BoardLink::reached(int peer, std::uint32_t stage) {
  Board* theirs = board(peer);
  if (theirs == nullptr) return false;
  if (slot_ > 0) {
    const Flag& flag = desk(*theirs).flag;
    if (flag.stamp.load(std::memory_order_acquire) < stamp(sequence_, stage)) return false;
    // The desk keeps this operation's fingerprint until the next but one slot operation, so it can
    // be compared without looking into the ledger.
    if (flag.fingerprint.load(std::memory_order_relaxed) == fingerprint_) return true;
    other_minded_ = peer;
    notice_disagreement();
    return false;
  }
  if (theirs->plain.flag.stamp.load(std::memory_order_acquire) < stamp(sequence_, stage))
    return false;
  return agrees(peer);
}

std::byte* BoardLink::slot(int peer) {
  if (slot_ > Desk::kBytes) return staged(peer);
  Desk& there = desk(*board(peer));
  return slot_ <= Desk::kWithFlag ? there.with_flag.data() : there.behind.data();
}

// Either this rank sees here that it may not, or the rank that has failed sees it in quiesce().
bool BoardLink::enter() noexcept {
  own().touching.store(true);
  if (may_touch()) return true;
  exit();
  return false;
}

void BoardLink::exit() noexcept {
  own().touching.store(false);
  if (!may_touch()) gate(rank_).notify();
}

// Peers hear of the failure when it reaches them, which may be later than this rank's caller does.
void BoardLink::quiesce() noexcept {
  own().halted.exchange(1);
  for (int peer = 0; peer < size(); ++peer) {
    Board* theirs = peer == rank_ ? nullptr : board(peer);
    if (theirs != nullptr) theirs->halted.store(1);
  }
  for (int peer = 0; peer < size(); ++peer) {
    const Board* theirs = peer == rank_ ? nullptr : board(peer);
    if (theirs == nullptr || !theirs->touching.load()) continue;
    gate(peer).wait([&] { return !theirs->touching.load(); }, quiet_by(peer));
  }
}

bool BoardLink::spin(FunctionRef<bool()> done) {
  return Gate::poll([&] { return done() || failed(); }, spin_);
}

bool BoardLink::wait(int peer, FunctionRef<bool()> done, Deadline deadline) {
  // Once something is reported there is nothing to wait for but the ranks' agreement on it.
  const auto over = [&] { return done() || failed(); };
  if (peer == kNobody) return gate(rank_).wait(over, deadline);
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
  const Deadline patience = Deadline::after(kPatience);
  for (const int late : missing()) {
    const auto arrived = [&] { return has_arrived(late) || failed(); };
    gate(late).wait(arrived, patience);
  }
  report_mismatch();
  return true;
}

void BoardLink::await_verdict() noexcept {
  gate(rank_).wait([&] { return failed(); }, Deadline::after(kVerdictPatience));
  settle_alone();
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
  const Board* theirs = board(peer);
  LeftGroup left{.peer = member(peer), .rank = member(rank_), .finished_at = 0};
  if (theirs != nullptr) left.finished_at = theirs->ledger.begun.load(std::memory_order_acquire);
  wire::Descriptor unknown;
  unknown.sequence = sequence_;
  fail(left_group(left, own().request(sequence_).value_or(unknown)));
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
  // Its flag said so; it was held up before it could say what it asked for.
  if (why.culprits().empty() && other_minded_ != kNobody) {
    why = {ErrorKind::mismatch,
           Code::invalid_argument,
           fmt::format("rank {} asked for something else than rank {} in operation {}, and has not "
                       "said for what",
                       member(other_minded_), member(rank_), sequence_),
           {member(other_minded_)}};
  }
  fail(why);
}

}  // namespace lockstep::transport
