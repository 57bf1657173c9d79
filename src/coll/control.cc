#include "coll/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "coll/control_peer.h"
#include "coll/group_spec.h"
#include "transport/left_group.h"
#include "transport/mismatch.h"
#include "transport/own_failure.h"

namespace lockstep::coll {
namespace {

/// Departures are collected for so long: when all leave at once, each rank would otherwise be told of
/// each other one by one.
constexpr Duration kBetweenTellings = std::chrono::milliseconds(20);

}  // namespace

Control::Control(const Setup& setup)
    : rank_(setup.rank),
      size_(setup.size),
      generation_(setup.generation),
      failure_(*setup.failure),
      history_(setup.history),
      names_(setup.names),
      timing_(setup.timing),
      on_departure_(setup.on_departure),
      left_(std::make_unique<std::atomic<std::uint64_t>[]>(static_cast<std::size_t>(setup.size))),
      silent_(std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(setup.size))),
      departures_(setup.size),
      unchecked_(static_cast<std::size_t>(setup.size)),
      latest_(static_cast<std::size_t>(setup.size)),
      census_(setup.size) {
  failure_.hold_for_verdict();
  for (int rank = 0; rank < size_; ++rank) {
    left_[static_cast<std::size_t>(rank)] = kHere;
    present_.push_back(rank);
  }
  for (const int peer : control_peers(rank_, size_)) {
    sys::Connection* connection = setup.peers[static_cast<std::size_t>(peer)];
    assert(connection != nullptr);
    peers_.push_back(std::make_unique<Peer>(peer, *connection, setup.generation));
    by_connection_[connection] = peers_.back().get();
  }
}

Control::~Control() = default;

void Control::poll(Time now) {
  begin_poll(now);
  for (auto& peer : peers_) hear(*peer, now);
  end_poll(now);
}

void Control::poll(Time now, std::span<sys::Connection* const> readable) {
  begin_poll(now);
  for (const sys::Connection* connection : readable) {
    const auto peer = by_connection_.find(connection);
    if (peer != by_connection_.end()) hear(*peer->second, now);
  }
  end_poll(now);
}

void Control::begin_poll(Time now) {
  if (!started_) {
    started_ = true;
    next_pulse_ = now;
    for (auto& peer : peers_) peer->heard = now;
  } else if (now - last_poll_ > timing_.suspect) {
    // This process was stopped or starved: the pulses of the peers may still wait to be read.
    for (auto& peer : peers_) peer->heard = std::min(now, peer->heard + (now - last_poll_));
  }
  last_poll_ = now;
}

void Control::end_poll(Time now) {
  tell_departures(now);
  look_for_peers(now);
  if (!concluded_) {
    judge_silence(now);
    compare_histories();
    if (!taken_up_ && failure_.proposed()) {
      taken_up_ = true;
      propose({.standing = wire::Standing::proposal, .origin = rank_, .cause = failure_.proposal()},
              nullptr);
    }
    decide(now);
    send_pulses(now);
  }
  if (cut_off_) return;
  const bool all_said = has_said_all();
  for (auto& peer : peers_) {
    peer->channel.flush();
    if (all_said) peer->channel.finish();
  }
}

Time Control::next_poll() const noexcept {
  if (!started_) return Time::min();
  if (concluded_) return Time::max();
  Time next = next_pulse_;
  if (settled_) next = std::min(next, *settled_);
  if (!news_.empty()) next = std::min(next, next_telling_);
  if (repair_at_ && *repair_at_ > last_poll_) next = std::min(next, *repair_at_);
  for (const auto& peer : peers_) {
    if (peer->lost || !needed(*peer)) continue;
    next = std::min(next, silent_since(*peer) + timing_.dead);
  }
  return next;
}

void Control::hear(Peer& peer, Time now) {
  while (const wire::FrameReader* frame = peer.channel.next()) handle(peer, *frame);
  if (peer.channel.heard()) {
    peer.heard = now;
    peer.suspected = false;
    peer.unproven = false;
    silent_[static_cast<std::size_t>(peer.rank)] = false;
  }
  if (!peer.channel.over() || peer.lost) return;
  // Nothing is passed on through it any more.
  if (left(peer.rank) && repair_at_) repair_at_ = std::min(*repair_at_, now);
  if (peer.aborting || peer.unproven || left(peer.rank) || concluded_) {
    peer.lost = true;
  } else {
    lose(peer, peer.channel.how());
  }
}

void Control::handle(Peer& peer, const wire::FrameReader& frame) {
  switch (frame.header().type) {
    case wire::FrameType::pulse:
      unchecked_[static_cast<std::size_t>(peer.rank)] = frame.pulse();
      latest_[static_cast<std::size_t>(peer.rank)] = frame.pulse().latest;
      break;
    case wire::FrameType::standings: {
      auto standings = frame.standings();
      if (peer.rank == hub_ && standings.begun.size() <= unchecked_.size()) {
        standings_.set(std::move(standings));
      }
      break;
    }
    case wire::FrameType::positions:
      census_.note(peer.rank, frame.positions());
      break;
    case wire::FrameType::notice: {
      const auto payload = frame.payload();
      const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
      log_warning("{}", one_line(text));
      break;
    }
    case wire::FrameType::departures:
      for (const wire::Departure& departure : frame.departures()) note(departure, peer);
      if (on_departure_) on_departure_();
      break;
    case wire::FrameType::abort: {
      wire::Abort abort;
      const Status readable = wire::decode(frame.payload(), size_, abort);
      peer.aborting = true;
      if (!readable.ok()) {
        lose(peer, "sent an " + readable.message());
      } else if (has_said_all() && abort.cause.kind() == ErrorKind::peer_lost) {
        break;  // all have left: a lost rank is not needed any more
      } else if (abort.standing == wire::Standing::verdict) {
        conclude(abort, &peer);
      } else {
        propose(abort, &peer);
      }
      break;
    }
    case wire::FrameType::operation:
    case wire::FrameType::data:
    case wire::FrameType::hello:
    case wire::FrameType::ready:
    case wire::FrameType::accepted:
    case wire::FrameType::members:
      break;  // refused by the channel
  }
}

void Control::notify(int rank, const std::string& text) {
  Peer* peer = find(rank);
  if (peer == nullptr || text.empty()) return;
  peer->channel.send(
      wire::FrameType::notice,
      std::as_bytes(std::span(text)).first(std::min(text.size(), wire::kMaxControlPayload)));
}

void Control::note(const wire::Departure& departure, const Peer& from) {
  if (departure.rank < 0) return;
  const auto last =
      std::min<std::int64_t>(std::int64_t{departure.rank} + departure.more, size_ - 1);
  for (std::int64_t rank = departure.rank; rank <= last; ++rank) {
    wire::Departure single = departure;
    single.rank = static_cast<std::int32_t>(rank);
    single.more = 0;
    if (!departures_.note(single)) continue;
    if (single.group == wire::kAllGroups) note_goodbye(single.rank, single.next);
    news_.push_back({single, &from});
  }
}

void Control::tell_departures(Time now) {
  for (const wire::Departure& own : departures_.take_untold()) news_.push_back({own, nullptr});
  if (news_.empty() || (now < next_telling_ && !has_said_all())) return;
  next_telling_ = now + kBetweenTellings;
  // A peer that has told all of it need not be told.
  const Peer* teller = news_.front().from;
  std::vector<wire::Departure> departures;
  for (const News& news : news_) {
    departures.push_back(news.departure);
    if (news.from != teller) teller = nullptr;
  }
  for (const auto& payload : wire::encode(std::move(departures))) {
    send_to_all(wire::FrameType::departures, payload, teller);
  }
  news_.clear();
}

void Control::compare_histories() {
  if (history_ == nullptr) return;
  if (const auto ours = left(rank_)) {
    for (int rank = 0; rank < size_; ++rank) {
      const auto theirs = left(rank);
      if (!theirs || *theirs == *ours) continue;
      failure_.report({ErrorKind::mismatch,
                       Code::invalid_argument,
                       fmt::format("rank {} has left after {} operations, rank {} after {}; every "
                                   "rank must make the same calls in the same order",
                                   rank_, *ours - 1, rank, *theirs - 1),
                       {std::min(rank, rank_), std::max(rank, rank_)}});
      return;
    }
  }
  const std::uint64_t here = history_->latest().descriptor.sequence;
  for (int rank = 0; rank < size_; ++rank) {
    auto& theirs = unchecked_[static_cast<std::size_t>(rank)];
    if (rank == rank_ || !theirs || theirs->latest.sequence > here) continue;
    compare(rank, *theirs);
    theirs.reset();
  }
}

void Control::compare(int rank, const wire::Pulse& theirs) {
  const std::uint64_t sequence = theirs.latest.sequence;
  const auto ours = history_->at(sequence);
  if (!ours || ours->digest == theirs.history) return;
  const bool before = wire::fingerprint(ours->descriptor) == wire::fingerprint(theirs.latest);
  const std::vector<int> ranks = {std::min(rank, rank_), std::max(rank, rank_)};
  if (before) {
    failure_.report({ErrorKind::mismatch, Code::invalid_argument,
                     fmt::format("ranks {} and {} have made different calls before operation {} "
                                 "({}); every rank must make the same calls in the same order",
                                 ranks[0], ranks[1], sequence, wire::describe(theirs.latest)),
                     ranks});
    return;
  }
  failure_.report(transport::mismatch(sequence,
                                      {rank < rank_ ? theirs.latest : ours->descriptor,
                                       rank < rank_ ? ours->descriptor : theirs.latest},
                                      ranks));
}

void Control::judge_silence(Time now) {
  // The ranks of a host that freezes fall silent together, but for the time between two pulses. So
  // do all peers of a rank that is cut off.
  const Duration with_it = timing_.dead - std::min(2 * timing_.pulse, timing_.dead / 4);
  int present = 0;
  int quiet = 0;
  bool given_up = false;
  for (auto& peer : peers_) {
    if (peer->lost) continue;
    const Duration silence = now - silent_since(*peer);
    // A peer that has left or told why it ends may fall silent. As long as it is heard, this rank is
    // not cut off.
    if (!needed(*peer) && silence >= timing_.suspect) {
      if (silence >= timing_.dead) silent_[static_cast<std::size_t>(peer->rank)] = true;
      continue;
    }
    ++present;
    if (silence >= with_it) ++quiet;
    if (silence < timing_.suspect) continue;
    given_up = given_up || silence >= timing_.dead;
    if (!peer->suspected) {
      peer->suspected = true;
      log_warning("rank {}: {} has been silent for {:.1f} s; it is given up at {:.1f} s", rank_,
                  name(*peer), seconds(silence), seconds(timing_.dead));
    }
  }
  if (!given_up) return;
  if (present > 1 && quiet == present) return cut_off(now);
  for (auto& peer : peers_) {
    const Duration silence = now - silent_since(*peer);
    if (peer->lost || !needed(*peer) || silence < with_it) continue;
    lose(*peer, fmt::format("is silent: no pulse for {:.1f} s", seconds(silence)));
  }
}

bool Control::needed(const Peer& peer) const noexcept { return !peer.aborting && !left(peer.rank); }

void Control::cut_off(Time now) {
  Time heard{};
  std::vector<int> unheard;
  for (const auto& peer : peers_) {
    if (peer->lost || !needed(*peer)) continue;
    unheard.push_back(peer->rank);
    heard = std::max(heard, peer->heard);
  }
  cut_off_ = true;
  concluded_ = true;
  const std::string text =
      fmt::format("rank {} is cut off: no pulse from any of the ranks {} for {:.1f} s", rank_,
                  fmt::join(unheard, ", "), seconds(now - heard));
  failure_.set({ErrorKind::peer_lost, Code::unavailable, text, std::move(unheard)});
}

void Control::lose(Peer& peer, const std::string& how) {
  peer.lost = true;
  peer.unproven = false;
  const std::string text = fmt::format("{} {} (noticed by rank {})", name(peer), how, rank_);
  Status cause(ErrorKind::peer_lost, Code::unavailable, text, {peer.rank});
  if (peer.channel.altered()) {
    // The peer is well: it is the way from there to here.
    cause = Status(ErrorKind::data_error, Code::data_loss, text,
                   {std::min(rank_, peer.rank), std::max(rank_, peer.rank)});
  }
  if (!peer.channel.shortage().ok()) {
    cause = transport::own_failure(peer.channel.shortage(), rank_);
  }
  propose({.standing = wire::Standing::proposal, .origin = rank_, .cause = std::move(cause)},
          nullptr);
}

std::string Control::name(const Peer& peer) const {
  return names_.empty() ? fmt::format("rank {} ({})", peer.rank, peer.channel.address())
                        : name(peer.rank);
}

std::string Control::name(int rank) const {
  return names_.empty() ? fmt::format("rank {}", rank) : names_[static_cast<std::size_t>(rank)];
}

void Control::send_pulses(Time now) {
  if (concluded_ || now < next_pulse_) return;
  next_pulse_ = now + timing_.pulse;
  ++pulses_;
  std::array<std::byte, wire::kPulseBytes> payload;
  wire::encode(standing(), payload);
  const auto positions = standings_.positions();
  for (auto& peer : peers_) {
    if (peer->lost || !peer->channel.empty()) continue;
    // Not all that get one rarely in the same moment.
    const auto turn = pulses_ + static_cast<unsigned>(peer->rank);
    if (turn % static_cast<unsigned>(spacing_of_pulses(*peer)) == 0) {
      peer->channel.send(wire::FrameType::pulse, payload);
    }
    if (peer->rank != hub_ || (positions == told_ && told_to_ == hub_)) continue;
    told_ = positions;
    told_to_ = hub_;
    peer->channel.send(wire::FrameType::positions, wire::encode(told_));
  }
  if (!is_hub()) return;
  census_.note(rank_, positions);
  tell_standings(now);
}

void Control::tell_standings(Time now) {
  for (const wire::Standings& standings : census_.news(now, 2 * timing_.pulse)) {
    const auto payload = wire::encode(standings);
    for (auto& peer : peers_) {
      if (standings.begun[static_cast<std::size_t>(peer->rank)] == wire::kNoPosition) continue;
      peer->channel.send(wire::FrameType::standings, payload);
    }
    standings_.set(standings);
  }
}

void Control::send_to_all(wire::FrameType type, std::span<const std::byte> payload,
                          const Peer* but) {
  for (auto& peer : peers_) {
    if (peer.get() != but) peer->channel.send(type, payload);
  }
}

wire::Pulse Control::standing() const {
  if (history_ == nullptr) return {};
  const auto latest = history_->latest();
  return {.latest = latest.descriptor, .history = latest.digest};
}

void Control::goodbye(std::uint64_t next) {
  note_goodbye(rank_, next);
  departures_.leave(rank_, wire::kAllGroups, next);
  std::array<std::byte, wire::kPulseBytes> payload;
  wire::encode(standing(), payload);
  send_to_all(wire::FrameType::pulse, payload, nullptr);  // where it stood in the end
  next_telling_ = {};
  // The next hub decides from now on.
  if (proposal_ && !concluded_) {
    send_to_all(wire::FrameType::abort, wire::encode(*proposal_), nullptr);
  }
}

bool Control::has_said_all() const noexcept {
  if (concluded_) return true;
  return left(rank_).has_value() &&
         std::all_of(peers_.begin(), peers_.end(),
                     [&](const auto& peer) { return peer->lost || left(peer->rank).has_value(); });
}

bool Control::may_leave() const noexcept {
  if (cut_off_) return true;
  return has_said_all() && std::all_of(peers_.begin(), peers_.end(),
                                       [](const auto& peer) { return peer->channel.over(); });
}

std::optional<std::uint64_t> Control::left(int peer) const noexcept {
  const std::uint64_t next = left_[static_cast<std::size_t>(peer)].load(std::memory_order_acquire);
  return next == kHere ? std::nullopt : std::optional(next);
}

Control::Peer* Control::find(int rank) const noexcept {
  const auto peer =
      std::lower_bound(peers_.begin(), peers_.end(), rank,
                       [](const auto& each, int wanted) { return each->rank < wanted; });
  return peer != peers_.end() && (*peer)->rank == rank ? peer->get() : nullptr;
}

bool Control::is_over(int peer) const noexcept {
  Peer* known = find(peer);
  return known != nullptr && known->channel.over();
}

std::optional<std::uint64_t> Control::first_missed(int peer, std::uint64_t group) const {
  const auto generation = left(peer);  // asked first, since it is told last
  if (const auto next = departures_.first_missed(group, peer)) return next;
  return generation && group != kWorld ? 1 : generation;
}

Status Control::missing(int peer, std::uint64_t group, const wire::Descriptor& operation,
                        DataPath path) const {
  const auto next = first_missed(peer, group);
  if (!next) return {};
  transport::LeftGroup left{.peer = peer, .rank = rank_};
  if (operation.sequence >= *next) {
    left.finished_at = *next - 1;
    if (*next > 1) left.how = fmt::format("after operation {}", *next - 1);
  } else if (path == DataPath::over) {
    left.how = "and its connection broke before all its bytes arrived";
  } else if (silent_[static_cast<std::size_t>(peer)]) {
    left.how = "and cannot be heard any more; not all its bytes have arrived";
  } else {
    return {};
  }
  return transport::left_group(left, operation);
}

}  // namespace lockstep::coll
