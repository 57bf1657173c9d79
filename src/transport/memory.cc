#include "transport/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/atomic_box.h"
#include "transport/mismatch.h"

namespace lockstep::transport {
namespace {

constexpr std::uint64_t stamp(std::uint64_t sequence, std::uint32_t stage) noexcept {
  return (sequence << 16) | stage;
}

/// A rank remembers what it asked for in its last kLedger operations; nobody may run further ahead
/// of the slowest rank than that, so every first contact can be checked.
constexpr std::uint64_t kLedger = 128;
constexpr std::uint64_t kLookEvery = 16;  // operations, at the others' progress
constexpr std::uint64_t kMaxLead = 48;
static_assert(2 * (kMaxLead + kLookEvery) <= kLedger, "also for reports that look back");

/// How long a rank that has seen a disagreement waits for the others' requests before it reports.
constexpr std::chrono::milliseconds kPatience{100};

}  // namespace

// Written by its own rank only, but for data written through exposed buffers.
struct MemoryGroup::Board {
  struct Flag {
    std::atomic<std::uint64_t> stamp = 0;
    std::atomic<std::uint64_t> fingerprint = 0;
  };
  /// Flag and first bytes of data share a cache line.
  struct alignas(64) Desk {
    Flag flag;
    std::byte data[MemoryLink::kSlotBytes];
  };
  struct alignas(64) Plain {
    Flag flag;
    const Exposure* exposure = nullptr;  // ordered by flag.stamp
  };
  struct alignas(64) Ledger {
    std::atomic<std::uint64_t> begun = 0;  // last sequence whose entry is valid
    std::atomic<bool> left = false;
    std::array<AtomicBox<wire::Descriptor>, kLedger> entries;  // ordered by begun
  };

  Plain plain;
  Ledger ledger;
  alignas(64) std::atomic<bool> touching = false;  // this rank is at a peer's memory
  std::array<Desk, plan::kSlots> desks;

  [[nodiscard]] std::optional<wire::Descriptor> request(std::uint64_t sequence) const {
    const std::uint64_t begun = ledger.begun.load(std::memory_order_acquire);
    if (begun < sequence) return std::nullopt;
    const wire::Descriptor entry = ledger.entries[sequence % kLedger].read();
    if (entry.sequence != sequence) return std::nullopt;  // overwritten, or about to be
    return entry;
  }
};

// Bytes on their way from one rank to another: a queue of spans, copied by the receiver. It has no
// bound but the plan's: a full queue would keep two ranks that both have more to send from ever
// receiving. Two segments in turn serve all but the longest trains of messages.
struct MemoryGroup::Channel {
  struct Entry {
    const std::byte* data = nullptr;
    std::size_t size = 0;
    std::uint64_t fingerprint = 0;
  };
  struct Segment {
    static constexpr std::uint64_t kEntries = 64;
    std::array<Entry, kEntries> entries;
    Segment* next = nullptr;
  };

  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() {
    for (const Segment* segment = head != nullptr ? head : first; segment != nullptr;) {
      const Segment* next = segment->next;
      delete segment;
      segment = next;
    }
    delete spare.load();
  }

  // The sender's: everything else of it is ordered by posted.
  alignas(64) std::atomic<std::uint64_t> posted = 0;
  Segment* first = nullptr;
  Segment* tail = nullptr;
  std::uint64_t tail_begin = 0;  // number of tail's first entry

  // The receiver's.
  alignas(64) std::atomic<std::uint64_t> taken = 0;
  Segment* head = nullptr;
  std::uint64_t head_begin = 0;
  std::size_t taken_bytes = 0;  // of the entry in progress

  std::atomic<Segment*> spare = nullptr;  // read to the end, for the sender to use again

  void post(const Entry& entry) {
    const std::uint64_t number = posted.load(std::memory_order_relaxed);
    if (tail == nullptr || number - tail_begin == Segment::kEntries) {
      Segment* segment = spare.exchange(nullptr, std::memory_order_acquire);
      if (segment == nullptr) segment = new Segment;
      segment->next = nullptr;
      (tail == nullptr ? first : tail->next) = segment;
      tail = segment;
      tail_begin = number;
    }
    tail->entries[number - tail_begin] = entry;
    posted.store(number + 1, std::memory_order_release);
  }
  /// The oldest entry not taken yet; null if there is none.
  const Entry* front() {
    const std::uint64_t number = taken.load(std::memory_order_relaxed);
    if (posted.load(std::memory_order_acquire) == number) return nullptr;
    if (head == nullptr) {
      head = first;
    } else if (number - head_begin == Segment::kEntries) {
      Segment* old = std::exchange(head, head->next);
      head_begin = number;
      delete spare.exchange(old, std::memory_order_acq_rel);
    }
    return &head->entries[number - head_begin];
  }
  void take() noexcept {
    taken_bytes = 0;
    taken.store(taken.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  [[nodiscard]] bool empty() const noexcept {
    return taken.load(std::memory_order_acquire) == posted.load(std::memory_order_relaxed);
  }
};

MemoryGeneration::MemoryGeneration(int ranks)
    : ranks_(ranks), gates_(std::make_unique<GateLine[]>(static_cast<std::size_t>(ranks))) {}

void MemoryGeneration::fail(const Status& why) noexcept {
  if (!failure_.set(why)) return;
  for (int rank = 0; rank < ranks_; ++rank) gate(rank).notify();
}

MemoryGroup::MemoryGroup(std::shared_ptr<MemoryGeneration> generation, std::vector<int> members)
    : generation_(std::move(generation)),
      members_(std::move(members)),
      boards_(std::make_unique<Board[]>(members_.size())),
      channels_(std::make_unique<Channel[]>(members_.size() * members_.size())) {}

MemoryGroup::~MemoryGroup() = default;

MemoryGroup::Channel& MemoryGroup::channel(int from, int to) noexcept {
  return channels_[static_cast<std::size_t>(from) * members_.size() + static_cast<std::size_t>(to)];
}

void MemoryGeneration::leave(int rank) noexcept {
  gates_[rank].left.store(true);
  gate(rank).notify();
}

void MemoryGroup::leave(int rank) noexcept {
  boards_[rank].ledger.left.store(true);
  gate(rank).notify();
}

MemoryLink::MemoryLink(std::shared_ptr<MemoryGroup> group, int rank)
    : group_(std::move(group)),
      generation_(group_->generation()),
      rank_(rank),
      spin_(SpinPolicy::for_threads(generation_.ranks(), usable_cores())),
      agreed_(static_cast<std::size_t>(group_->size()), 0) {}

MemoryLink::~MemoryLink() = default;

int MemoryLink::begin(const wire::Descriptor& descriptor, const Exposure& mine, Staging staging) {
  // Looking at every rank costs a cache line each, so only now and then.
  const bool look = descriptor.sequence % kLookEvery == 0;
  if (look && descriptor.sequence > kMaxLead) {
    for (int peer = 0; peer < size(); ++peer) {
      const auto& ledger = group_->boards_[peer].ledger;
      if (peer != rank_ &&
          ledger.begun.load(std::memory_order_acquire) < descriptor.sequence - kMaxLead) {
        return peer;
      }
    }
  }
  MemoryGroup::Board& board = group_->boards_[rank_];
  sequence_ = descriptor.sequence;
  fingerprint_ = wire::fingerprint(descriptor);
  staging_ = staging;
  disagreed_ = false;
  if (staging == Staging::slots) ++slot_operations_;
  board.plain.exposure = &mine;
  board.ledger.entries[sequence_ % kLedger].write(descriptor);
  board.ledger.begun.store(sequence_, std::memory_order_release);
  if (look) group_->gate(rank_).notify();  // somebody ahead may wait for just this
  return kNobody;
}

int MemoryLink::end() {
  while (!sent_to_.empty()) {
    if (!drained(sent_to_.back())) return sent_to_.back();
    sent_to_.pop_back();
  }
  return kNobody;
}

void MemoryLink::send(int to, std::span<const std::byte> bytes) {
  group_->channel(rank_, to).post({bytes.data(), bytes.size(), fingerprint_});
  group_->gate(rank_).notify();
  if (std::find(sent_to_.begin(), sent_to_.end(), to) == sent_to_.end()) sent_to_.push_back(to);
}

std::size_t MemoryLink::receive(int from, std::span<std::byte> bytes) {
  MemoryGroup::Channel& channel = group_->channel(from, rank_);
  if (!enter()) return 0;
  std::size_t moved = 0;
  while (moved < bytes.size()) {
    const MemoryGroup::Channel::Entry* entry = channel.front();
    if (entry == nullptr) break;
    if (entry->fingerprint != fingerprint_) {
      notice_disagreement();
      break;
    }
    const std::size_t now = std::min(bytes.size() - moved, entry->size - channel.taken_bytes);
    std::memcpy(bytes.data() + moved, entry->data + channel.taken_bytes, now);
    moved += now;
    channel.taken_bytes += now;
    if (channel.taken_bytes < entry->size) continue;
    channel.take();
    group_->gate(rank_).notify();
  }
  exit();
  return moved;
}

bool MemoryLink::drained(int to) { return group_->channel(rank_, to).empty(); }

void MemoryLink::publish(std::uint32_t stage) {
  MemoryGroup::Board& board = group_->boards_[rank_];
  auto& flag = staging_ == Staging::slots ? board.desks[slot_operations_ % plan::kSlots].flag
                                          : board.plain.flag;
  flag.fingerprint.store(fingerprint_, std::memory_order_relaxed);
  flag.stamp.store(stamp(sequence_, stage), std::memory_order_release);
  group_->gate(rank_).notify();
}

bool MemoryLink::reached(int peer, std::uint32_t stage) {
  const MemoryGroup::Board& board = group_->boards_[peer];
  if (staging_ == Staging::slots) {
    const auto& flag = board.desks[slot_operations_ % plan::kSlots].flag;
    if (flag.stamp.load(std::memory_order_acquire) < stamp(sequence_, stage)) return false;
    // The desk keeps this operation's fingerprint until the next but one slot operation, so it can
    // be compared without looking into the ledger.
    if (flag.fingerprint.load(std::memory_order_relaxed) == fingerprint_) return true;
    notice_disagreement();
    return false;
  }
  if (board.plain.flag.stamp.load(std::memory_order_acquire) < stamp(sequence_, stage))
    return false;
  return agrees(peer);
}

const Exposure& MemoryLink::exposed(int peer) { return *group_->boards_[peer].plain.exposure; }

std::byte* MemoryLink::slot(int peer) {
  return group_->boards_[peer].desks[slot_operations_ % plan::kSlots].data;
}

// Either we see the failure here, or whoever fails after us sees us in quiesce().
bool MemoryLink::enter() noexcept {
  group_->boards_[rank_].touching.store(true);
  if (!failed()) return true;
  exit();
  return false;
}

void MemoryLink::exit() noexcept {
  group_->boards_[rank_].touching.store(false);
  if (failed()) group_->gate(rank_).notify();
}

void MemoryLink::quiesce() noexcept {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    // A rank is at another's memory for one instruction at most, and nothing there waits.
    const auto& touching = group_->boards_[peer].touching;
    group_->gate(peer).wait([&] { return !touching.load(); }, Deadline::never());
  }
}

bool MemoryLink::spin(FunctionRef<bool()> done) {
  return Gate::poll([&] { return done() || failed(); }, spin_);
}

bool MemoryLink::wait(int peer, FunctionRef<bool()> done, Deadline deadline) {
  const auto over = [&] { return done() || failed(); };
  // Let peers that sleep look at what we asked for.
  group_->gate(rank_).notify();
  const auto over_or_hopeless = [&] {
    if (over() || disagreed_ || disagrees(peer)) return true;
    if (!has_left(peer)) return false;
    // What it did before it left counts, so look once more after having seen it leave.
    if (!over()) report_left(peer);
    return true;
  };
  const bool in_time = group_->gate(peer).wait(over_or_hopeless, deadline);
  if (!disagreed_ || failed()) return in_time;
  // The table is worth a moment: those still on their way will ask for something, too.
  const Deadline patience = earlier(deadline, Deadline::after(kPatience));
  for (const int late : missing()) {
    const auto arrived = [&] { return has_arrived(late) || failed(); };
    group_->gate(late).wait(arrived, patience);
  }
  report_mismatch();
  return true;
}

bool MemoryLink::has_arrived(int peer) const {
  return group_->boards_[peer].ledger.begun.load(std::memory_order_acquire) >= sequence_;
}

std::vector<int> MemoryLink::missing() const {
  std::vector<int> ranks;
  for (int peer = 0; peer < size(); ++peer) {
    if (!has_arrived(peer)) ranks.push_back(peer);
  }
  return ranks;
}

bool MemoryLink::agrees(int peer) {
  if (agreed_[peer] == sequence_) return true;
  if (disagrees(peer)) return false;
  agreed_[peer] = sequence_;
  return true;
}

bool MemoryLink::disagrees(int peer) {
  const auto request = group_->boards_[peer].request(sequence_);
  if (!request || wire::fingerprint(*request) == fingerprint_) return false;
  notice_disagreement();
  return true;
}

void MemoryLink::notice_disagreement() {
  disagreed_ = true;
  if (missing().empty()) report_mismatch();
}

bool MemoryLink::has_left(int peer) const {
  return group_->boards_[peer].ledger.left.load() || generation_.has_left(member(peer));
}

void MemoryLink::report_left(int peer) {
  const auto request = group_->boards_[rank_].request(sequence_);
  fail({ErrorKind::peer_lost,
        Code::unavailable,
        fmt::format("rank {} has left the group (its session was closed), but rank {} needs it for "
                    "operation {}: {}",
                    member(peer), member(rank_), sequence_,
                    request ? wire::describe(*request) : "?"),
        {member(peer)}});
}

void MemoryLink::report_mismatch() {
  // Bytes that nobody took show a disagreement only later: report the operation it began with.
  Status why;
  for (std::uint64_t at = sequence_ > kMaxLead ? sequence_ - kMaxLead : 1; at <= sequence_; ++at) {
    std::vector<std::optional<wire::Descriptor>> rows(static_cast<std::size_t>(size()));
    for (int rank = 0; rank < size(); ++rank) rows[rank] = group_->boards_[rank].request(at);
    why = mismatch(at, rows, group_->members_);
    if (!why.culprits().empty()) break;
  }
  fail(why);
}

std::unique_ptr<Link> MemoryFabric::link(std::uint64_t id, const std::vector<int>& members,
                                         int rank) {
  std::shared_ptr<MemoryGroup> group;
  {
    const MutexLock lock(mutex_);
    Forming& forming = forming_[id];
    if (!forming.group) forming.group = std::make_shared<MemoryGroup>(generation_, members);
    group = forming.group;
    // The last member takes the entry away: the group lives as long as its links.
    if (++forming.taken == members.size()) forming_.erase(id);
  }
  return std::make_unique<MemoryLink>(std::move(group), rank);
}

}  // namespace lockstep::transport
