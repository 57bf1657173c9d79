#include "transport/host_rings.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "transport/group_memory.h"
#include "transport/ring_connection.h"

namespace lockstep::transport {

struct HostRings::Shared {
  using Place = std::atomic<std::uint64_t>;  // in the segment; 0: none yet

  Shared(std::shared_ptr<ShmHost> its_host, std::uint64_t group, std::vector<int> its_indices)
      : host(std::move(its_host)),
        indices(std::move(its_indices)),
        memory(*host, group, indices, block_bytes()) {}

  /// Of the memory that the members find: where the channels to each of them lie.
  [[nodiscard]] std::size_t block_bytes() const noexcept { return indices.size() * sizeof(Place); }
  [[nodiscard]] std::size_t capacity() const noexcept {
    return ring_bytes(static_cast<int>(indices.size()));
  }
  [[nodiscard]] Place& place(std::byte* block, int to) const noexcept {
    const auto position = std::find(indices.begin(), indices.end(), to) - indices.begin();
    return reinterpret_cast<Place*>(block)[position];
  }
  /// The channel that this rank writes to; it grows with what goes through it.
  [[nodiscard]] std::byte* outgoing(int to) {
    const MutexLock lock(mutex);
    std::byte* const channel =
        memory.add(Channel::bytes(capacity()), Channel::first_bytes(kFirstRingBytes));
    place(memory.data(), to).store(host->offset_of(channel), std::memory_order_release);
    return channel;
  }
  void grow(const std::byte* channel, std::size_t usable) {
    memory.commit(channel, Channel::first_bytes(usable));
  }
  /// The one that the other rank writes to, once it has made it.
  [[nodiscard]] std::optional<Channel> incoming(int from) const noexcept {
    std::byte* const block = memory.find(from, block_bytes());
    if (block == nullptr) return std::nullopt;
    const std::uint64_t offset = place(block, host->index()).load(std::memory_order_acquire);
    std::byte* const channel = host->at_page(from, offset, Channel::bytes(capacity()));
    if (channel == nullptr) return std::nullopt;
    return Channel(channel, capacity());
  }

  std::shared_ptr<ShmHost> host;
  std::vector<int> indices;
  Mutex mutex;
  GroupMemory memory;
};

HostRings::HostRings(std::shared_ptr<ShmHost> host, std::uint64_t group, std::vector<int> indices)
    : shared_(std::make_shared<Shared>(std::move(host), group, std::move(indices))) {}

std::unique_ptr<sys::Connection> HostRings::connect(int index,
                                                    std::unique_ptr<sys::Connection> socket) const {
  std::byte* const channel = shared_->outgoing(index);
  const std::size_t capacity = shared_->capacity();
  return std::make_unique<RingConnection>(
      std::move(socket), Channel(channel, capacity),
      [shared = shared_, index] { return std::as_const(*shared).incoming(index); },
      RingConnection::Growth{
          .usable = kFirstRingBytes,
          .capacity = capacity,
          .grow = [shared = shared_,
                   channel](std::size_t usable) { shared->grow(channel, usable); },
      });
}

}  // namespace lockstep::transport
