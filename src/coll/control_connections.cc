// Which control connections this rank has, and what they are for: the peers of a rank, the hub, and the
// connections that replace those of ranks that have left.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "coll/control_peer.h"

namespace lockstep::coll {
namespace {

/// So many ranks exchange pulses with the hub every time.
constexpr int kRanksPerPulse = 64;

/// For ranks that leave at about the same time: connections among them would be of no use. Processes
/// that end give their last word a second.
constexpr Duration kRepairAfter = std::chrono::milliseconds(500);

}  // namespace

std::vector<int> control_peers(int rank, int size) {
  std::vector<int> peers;
  for (int peer = 0; peer < size; ++peer) {
    const int distance = (peer - rank + size) % size;
    if (peer == rank) continue;
    if (rank == 0 || peer == 0 || distance == 1 || distance == size - 1) peers.push_back(peer);
  }
  return peers;
}

std::vector<int> control_peers(int rank, std::span<const int> present) {
  const auto own = std::lower_bound(present.begin(), present.end(), rank);
  const int size = static_cast<int>(present.size());
  std::vector<int> peers;
  for (const int place : control_peers(static_cast<int>(own - present.begin()), size)) {
    peers.push_back(present[static_cast<std::size_t>(place)]);
  }
  return peers;
}

void Control::note_goodbye(int rank, std::uint64_t next) {
  left_[static_cast<std::size_t>(rank)] = std::min(next, kHere - 1);
  std::erase(present_, rank);
  look_for_hub();
  const bool under_way = repair_at_ && (*repair_at_ > last_poll_ || !lacks_.empty());
  if (!under_way) repair_at_ = last_poll_ + kRepairAfter;
}

bool Control::lacks(int rank) const noexcept {
  const Peer* peer = find(rank);
  return !left(rank) && (peer == nullptr || peer->unproven);
}

std::vector<int> Control::lacking() const {
  std::vector<int> ranks;
  for (const auto& [rank, lack] : lacks_) ranks.push_back(rank);
  return ranks;
}

void Control::look_for_peers(Time now) {
  const bool due = repair_at_ && *repair_at_ <= now;
  if (!due || concluded_ || left(rank_)) {
    lacks_.clear();
    return;
  }
  const std::vector<int> wanted = control_peers(rank_, present_);
  const auto is_lacking = [&](int rank) {
    const Peer* peer = find(rank);
    return peer == nullptr || (peer->unproven && peer->lost);
  };
  std::erase_if(lacks_, [&](const auto& each) {
    return !is_lacking(each.first) || !std::binary_search(wanted.begin(), wanted.end(), each.first);
  });
  for (const int rank : wanted) {
    if (!is_lacking(rank)) continue;
    Lack& lack = lacks_.try_emplace(rank, Lack{.since = now}).first->second;
    if (lack.given_up || now - lack.since < timing_.dead) continue;
    if (lack.refused) {
      // Its process has ended. If the rank had died, its peers would have said so. So it has left,
      // and so have the peers that were told.
      lacks_.erase(rank);
      std::erase(present_, rank);
      look_for_hub();
      continue;
    }
    lack.given_up = true;
    propose(
        {.standing = wire::Standing::proposal,
         .origin = rank_,
         .cause = {ErrorKind::peer_lost,
                   Code::unavailable,
                   fmt::format("{} cannot be reached: no answer for {:.1f} s (noticed by rank {})",
                               name(rank), seconds(now - lack.since), rank_),
                   {rank}}},
        nullptr);
  }
}

void Control::refused(int rank) noexcept {
  const auto lack = lacks_.find(rank);
  if (lack != lacks_.end()) lack->second.refused = true;
}

void Control::look_for_hub() noexcept {
  // When all have left, there may still be a verdict to give: which rank made other calls.
  hub_ = present_.empty() ? 0 : present_.front();
}

void Control::connect(int rank, sys::Connection& connection, Time now) {
  auto place = std::lower_bound(peers_.begin(), peers_.end(), rank,
                                [](const auto& each, int wanted) { return each->rank < wanted; });
  if (place == peers_.end() || (*place)->rank != rank) {
    place = peers_.insert(place, nullptr);
  } else {
    std::erase_if(by_connection_, [&](const auto& each) { return each.second == place->get(); });
    for (News& news : news_) {
      if (news.from == place->get()) news.from = nullptr;
    }
  }
  if (!left(rank) && !std::binary_search(present_.begin(), present_.end(), rank)) {
    present_.insert(std::lower_bound(present_.begin(), present_.end(), rank), rank);
    look_for_hub();
  }
  *place = std::make_unique<Peer>(rank, connection, generation_);
  Peer& peer = **place;
  by_connection_[&connection] = &peer;
  peer.heard = now;
  peer.unproven = true;
  brief(peer);
  hear(peer, now);
}

void Control::brief(Peer& peer) {
  std::array<std::byte, wire::kPulseBytes> payload;
  wire::encode(standing(), payload);
  peer.channel.send(wire::FrameType::pulse, payload);
  for (const auto& departures : wire::encode(departures_.all())) {
    peer.channel.send(wire::FrameType::departures, departures);
  }
  if (const auto& abort = verdict_ ? verdict_ : proposal_) {
    peer.channel.send(wire::FrameType::abort, wire::encode(*abort));
  }
  peer.channel.flush();
}

int Control::rarest_pulse() const noexcept {
  return std::max(1, static_cast<int>(timing_.suspect / (2 * timing_.pulse)));
}

int Control::hub_spacing() const noexcept {
  return std::clamp(size_ / kRanksPerPulse, 1, rarest_pulse());
}

int Control::spacing_of_pulses(const Peer& peer) const noexcept {
  if (left(rank_) || left(peer.rank)) return rarest_pulse();
  if (!is_hub() && peer.rank != hub_) return 1;
  const int other = is_hub() ? peer.rank : rank_;
  if (other == present_[1] || other == present_.back()) return 1;
  return hub_spacing();
}

Time Control::silent_since(const Peer& peer) const noexcept {
  return peer.heard + (spacing_of_pulses(peer) - 1) * timing_.pulse;
}

}  // namespace lockstep::coll
