#include "transport/memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "sys/topology.h"

namespace lockstep::transport {

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
  std::uint64_t tail_begin = 0;    // number of tail's first entry
  std::uint64_t posted_bytes = 0;  // ever

  // The receiver's.
  alignas(64) std::atomic<std::uint64_t> taken = 0;
  Segment* head = nullptr;
  std::uint64_t head_begin = 0;
  std::size_t taken_bytes = 0;                  // of the entry in progress
  std::atomic<std::uint64_t> copied_bytes = 0;  // ever

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
    posted_bytes += entry.size;
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
  /// So many bytes of the front were copied.
  void advance(std::size_t bytes) noexcept {
    taken_bytes += bytes;
    // Only the receiver writes it.
    copied_bytes.store(copied_bytes.load(std::memory_order_relaxed) + bytes,
                       std::memory_order_relaxed);
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

Board& MemoryGroup::board(int rank) noexcept { return boards_[static_cast<std::size_t>(rank)]; }

MemoryGroup::Channel& MemoryGroup::channel(int from, int to) noexcept {
  return channels_[static_cast<std::size_t>(from) * members_.size() + static_cast<std::size_t>(to)];
}

std::vector<Gate*> MemoryGroup::gates() const {
  std::vector<Gate*> gates;
  gates.reserve(members_.size());
  for (const int member : members_) gates.push_back(&generation_->gate(member));
  return gates;
}

void MemoryGeneration::leave(int rank) noexcept {
  gates_[rank].left.store(true);
  gate(rank).notify();
}

void MemoryGroup::leave(int rank) noexcept {
  board(rank).ledger.left.store(true);
  generation_->gate(members_[static_cast<std::size_t>(rank)]).notify();
}

MemoryLink::MemoryLink(std::shared_ptr<MemoryGroup> group, int rank)
    : BoardLink(group->members(), rank, group->gates(), group->generation().failure(),
                SpinPolicy::for_threads(group->generation().ranks(), sys::usable_processors())),
      group_(std::move(group)),
      generation_(group_->generation()) {
  for (int each = 0; each < size(); ++each) set_board(each, &group_->board(each));
}

MemoryLink::~MemoryLink() = default;

int MemoryLink::end() {
  while (!sent_to_.empty()) {
    if (!drained(sent_to_.back())) return sent_to_.back();
    sent_to_.pop_back();
  }
  return kNobody;
}

void MemoryLink::send(int to, std::span<const std::byte> bytes) {
  group_->channel(rank(), to).post({bytes.data(), bytes.size(), fingerprint()});
  gate(rank()).notify();
  if (std::find(sent_to_.begin(), sent_to_.end(), to) == sent_to_.end()) sent_to_.push_back(to);
}

std::size_t MemoryLink::receive(int from, std::span<std::byte> bytes) {
  MemoryGroup::Channel& channel = group_->channel(from, rank());
  const Touch touch(*this);
  if (!touch.allowed()) return 0;
  std::size_t moved = 0;
  while (moved < bytes.size()) {
    const MemoryGroup::Channel::Entry* entry = channel.front();
    if (entry == nullptr) break;
    if (entry->fingerprint != fingerprint()) {
      notice_disagreement();
      break;
    }
    const std::size_t now = std::min(bytes.size() - moved, entry->size - channel.taken_bytes);
    std::memcpy(bytes.data() + moved, entry->data + channel.taken_bytes, now);
    moved += now;
    channel.advance(now);
    if (channel.taken_bytes < entry->size) continue;
    channel.take();
    gate(rank()).notify();
  }
  return moved;
}

bool MemoryLink::drained(int to) { return group_->channel(rank(), to).empty(); }

std::uint64_t MemoryLink::unsent() const noexcept {
  std::uint64_t bytes = 0;
  for (const int to : sent_to_) {
    const MemoryGroup::Channel& channel = group_->channel(rank(), to);
    bytes += channel.posted_bytes - channel.copied_bytes.load(std::memory_order_relaxed);
  }
  return bytes;
}

bool MemoryLink::has_left(int rank) const {
  return board(rank)->ledger.left.load() || generation_.has_left(member(rank));
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
