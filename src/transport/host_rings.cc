#include "transport/host_rings.h"

#include <algorithm>
#include <utility>

#include "transport/ring_connection.h"

namespace lockstep::transport {

HostRings::HostRings(std::shared_ptr<ShmHost> host, std::uint64_t group, std::vector<int> indices)
    : host_(std::move(host)),
      group_(group),
      indices_(std::move(indices)),
      own_(host_->reserve(block_bytes())) {
  host_->announce(group_, own_);
}

std::size_t HostRings::block_bytes() const noexcept {
  const int members = static_cast<int>(indices_.size());
  return (indices_.size() - 1) * Channel::bytes(ring_bytes(members));
}

Channel HostRings::channel(std::byte* block, int from, int to) const noexcept {
  const std::size_t capacity = ring_bytes(static_cast<int>(indices_.size()));
  const auto position = [&](int index) {
    return static_cast<std::size_t>(std::find(indices_.begin(), indices_.end(), index) -
                                    indices_.begin());
  };
  // Nobody has a channel to itself.
  const std::size_t place = position(to) - (position(to) > position(from) ? 1 : 0);
  return {block + place * Channel::bytes(capacity), capacity};
}

std::unique_ptr<sys::Connection> HostRings::connect(int index,
                                                    std::unique_ptr<sys::Connection> socket) const {
  const int own = host_->index();
  return std::make_unique<RingConnection>(std::move(socket), channel(own_, own, index),
                                          [rings = *this, own, index]() -> std::optional<Channel> {
                                            std::byte* theirs = rings.host_->find(
                                                index, rings.group_, rings.block_bytes());
                                            if (theirs == nullptr) return std::nullopt;
                                            return rings.channel(theirs, index, own);
                                          });
}

}  // namespace lockstep::transport
