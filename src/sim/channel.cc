#include "sim/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep::sim::detail {

using State = sys::Transfer::State;

Channel::Channel(World& world, std::uint64_t number, Binding caller, Binding callee)
    : world_(world), number_(number) {
  end(Side::caller).bound = std::move(caller);
  end(Side::callee).bound = std::move(callee);
}

void Channel::bind(Side side, Binding binding) { end(side).bound = std::move(binding); }

void Channel::consume(End& sender, std::size_t bytes) noexcept {
  sender.consumed += bytes;
  sender.trim += bytes;
  if (sender.trim == sender.bytes.size()) {
    sender.bytes.clear();
    sender.trim = 0;
  }
}

sys::Transfer Channel::read(Side side, std::span<std::byte> into) noexcept {
  const End& mine = end(side);
  End& theirs = end(other(side));
  if (into.empty()) return {};
  if (mine.broken == Break::killed) return {0, State::broken};
  const std::size_t ready = theirs.delivered - theirs.consumed;
  if (const std::size_t taken = std::min(ready, into.size()); taken > 0) {
    std::memcpy(into.data(), theirs.bytes.data() + theirs.trim, taken);
    consume(theirs, taken);
    touch(other(side));  // there is room again
    return {taken, State::open};
  }
  if (mine.broken != Break::none) return {0, State::broken};
  return {0, theirs.end_arrived ? State::closed : State::open};
}

sys::Transfer Channel::write(Side side, std::span<const std::byte> from) noexcept {
  End& mine = end(side);
  if (mine.end_sent && mine.broken == Break::none) mine.broken = Break::misuse;
  if (mine.broken != Break::none) return {0, State::broken};
  if (!mine.established) return {};
  const std::size_t used = mine.written - mine.consumed;
  const std::size_t buffer = mine.bound.route->options.buffer;
  const std::size_t taken = std::min(from.size(), buffer - std::min(buffer, used));
  if (taken == 0) return {};
  // Moving the rest to the front pays once the consumed part is the larger one.
  if (mine.trim > mine.bytes.size() / 2) {
    mine.bytes.erase(mine.bytes.begin(),
                     mine.bytes.begin() + static_cast<std::ptrdiff_t>(mine.trim));
    mine.trim = 0;
  }
  mine.bytes.insert(mine.bytes.end(), from.begin(),
                    from.begin() + static_cast<std::ptrdiff_t>(taken));
  mine.written += taken;
  send(side, Segment::Kind::data, taken);
  return {taken, State::open};
}

void Channel::shutdown_write(Side side) {
  End& mine = end(side);
  if (mine.end_sent || mine.broken != Break::none) return;
  mine.end_sent = true;
  // Before the handshake is over the end waits for it, like bytes would.
  if (mine.established) send(side, Segment::Kind::end, 0);
}

void Channel::close(Side side) {
  End& mine = end(side);
  const End& theirs = end(other(side));
  if (!mine.held) return;
  mine.held = false;
  if (mine.broken != Break::none) return;
  // A kernel that throws away bytes nobody read tells the sender so with a reset.
  const bool unread = theirs.delivered > theirs.consumed;
  if (unread) {
    send_reset(side);
  } else {
    shutdown_write(side);
  }
}

void Channel::abandon(Side side) {
  End& mine = end(side);
  const Break before = std::exchange(mine.broken, Break::killed);
  if (before != Break::none || !mine.held) return;
  const End& theirs = end(other(side));
  if (theirs.delivered > theirs.consumed || world_.random().chance(0.5)) {
    send_reset(side);
  } else if (!mine.end_sent) {
    mine.end_sent = true;
    if (mine.established) send(side, Segment::Kind::end, 0);
  }
}

Status Channel::error(Side side) const {
  const auto lost = [&](Code code, std::string_view what) {
    return Status(ErrorKind::system_error, code,
                  fmt::format("connection to {}: {}", peer_address(side), what));
  };
  switch (end(side).broken) {
    case Break::none:
      return {};
    case Break::refused:
      return lost(Code::unavailable, "refused: nobody listens there");
    case Break::reset:
      return lost(Code::unavailable, "reset by the peer");
    case Break::timed_out:
      return lost(Code::deadline_exceeded, "timed out: no answer");
    case Break::cut:
      return lost(Code::unavailable, "reset: the link was cut");
    case Break::killed:
      return lost(Code::cancelled, "this process was killed");
    case Break::misuse:
      return lost(Code::failed_precondition, "written to after shutdown_write()");
  }
  return {};
}

const std::string& Channel::peer_address(Side side) const { return end(other(side)).bound.address; }

sys::Delivery Channel::delivery(Side side) const noexcept {
  const End& mine = end(side);
  return {.waits = mine.acknowledged < mine.written,
          .acknowledged = mine.acknowledged,
          .answers = 0,
          .data = end(other(side)).arrivals};
}

void Channel::acknowledge(Side from) noexcept {
  if (end(other(from)).bound.route->delivers()) end(from).acknowledged = end(from).delivered;
}

bool Channel::readable(Side side) const noexcept {
  const End& theirs = end(other(side));
  return theirs.delivered > theirs.consumed || theirs.end_arrived ||
         end(side).broken != Break::none;
}

bool Channel::writable(Side side) const noexcept {
  const End& mine = end(side);
  if (mine.broken != Break::none) return true;
  return mine.established && mine.written - mine.consumed < mine.bound.route->options.buffer;
}

bool Channel::is_open(Side side) const noexcept {
  return end(side).held && end(side).broken == Break::none;
}

void Channel::establish(Side side) {
  End& mine = end(side);
  if (mine.broken == Break::killed) return send_reset(side);  // the caller died while it called
  if (mine.established || mine.broken != Break::none) return;
  mine.established = true;
  touch(side);
  if (mine.end_sent) send(side, Segment::Kind::end, 0);
}

void Channel::break_end(Side side, Break why) {
  End& mine = end(side);
  if (mine.broken != Break::none) return;
  mine.broken = why;
  // Bytes on their way out or in are lost; what has arrived can still be read.
  drop_in_flight(side);
  drop_in_flight(other(side));
  touch(side);
}

void Channel::resume() {
  for (const Side side : {Side::caller, Side::callee}) {
    acknowledge(side);
    if (end(side).first < end(side).in_flight.size()) schedule_arrival(side, world_.now());
  }
}

void Channel::send(Side from, Segment::Kind kind, std::size_t bytes) {
  End& mine = end(from);
  const LinkOptions& options = mine.bound.route->options;
  Time leaves = std::max(world_.now(), mine.line_free);
  if (options.bytes_per_second > 0) {
    const double seconds =
        static_cast<double>(bytes) / static_cast<double>(options.bytes_per_second);
    leaves += std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
    mine.line_free = leaves;
  }
  const Time arrival =
      std::max(mine.last_arrival, leaves + options.delay + world_.random().up_to(options.jitter));
  mine.last_arrival = arrival;
  if (mine.first < mine.in_flight.size() && kind == Segment::Kind::data) {
    Segment& last = mine.in_flight.back();
    if (last.kind == kind && last.arrival == arrival) {
      last.upto = mine.written;
      return;
    }
  }
  mine.in_flight.push_back({mine.written, arrival, kind});
  schedule_arrival(from, mine.in_flight[mine.first].arrival);
}

void Channel::send_reset(Side from) {
  End& mine = end(from);
  // Some of the bytes under way may still arrive before the reset does.
  const std::uint64_t kept = world_.random().below(mine.written - mine.delivered + 1);
  const std::uint64_t upto = mine.delivered + kept;
  const Time arrival = std::max(mine.last_arrival, world_.now() + mine.bound.route->options.delay);
  drop_in_flight(from);
  mine.end_sent = true;
  if (kept > 0) mine.in_flight.push_back({upto, arrival, Segment::Kind::data});
  mine.in_flight.push_back({upto, arrival, Segment::Kind::reset});
  schedule_arrival(from, arrival);
}

void Channel::drop_in_flight(Side from) {
  end(from).in_flight.clear();
  end(from).first = 0;
}

void Channel::schedule_arrival(Side from, Time at) {
  if (end(from).scheduled) return;
  end(from).scheduled = true;
  if (from == Side::caller) {
    world_.schedule(at, [this] { arrive(Side::caller); });
  } else {
    world_.schedule(at, [this] { arrive(Side::callee); });
  }
}

void Channel::arrive(Side from) {
  End& mine = end(from);
  End& theirs = end(other(from));
  mine.scheduled = false;
  if (mine.first == mine.in_flight.size() || !mine.bound.route->delivers()) return;
  const Segment segment = mine.in_flight[mine.first];
  if (segment.arrival > world_.now()) return schedule_arrival(from, segment.arrival);

  const std::size_t piece = mine.bound.route->options.piece;
  Time next = world_.now();
  bool whole = true;
  if (segment.kind == Segment::Kind::data) {
    std::uint64_t bytes = segment.upto - mine.delivered;
    if (piece > 0) bytes = std::min(bytes, 1 + world_.random().below(piece));
    mine.delivered += bytes;
    ++mine.arrivals;
    acknowledge(from);
    whole = mine.delivered == segment.upto;
    if (!whole) next += world_.random().up_to(mine.bound.route->options.jitter);
    mine.last_arrival = std::max(mine.last_arrival, next);
  }
  world_.note(number_ * 8 + static_cast<std::uint64_t>(from) * 4 +
              static_cast<std::uint64_t>(segment.kind));
  world_.note(mine.delivered);
  if (whole && ++mine.first == mine.in_flight.size()) drop_in_flight(from);

  if (segment.kind == Segment::Kind::reset) {
    break_end(other(from), Break::reset);
  } else if (segment.kind == Segment::Kind::end) {
    mine.end_arrived = true;
  } else if (!theirs.held || theirs.broken != Break::none) {
    // Nobody will read this. A kernel answers so, once.
    consume(mine, mine.delivered - mine.consumed);
    drop_in_flight(from);
    send_reset(other(from));
  }
  touch(other(from));
  if (mine.first < mine.in_flight.size()) {
    schedule_arrival(from, std::max(next, mine.in_flight[mine.first].arrival));
  }
}

}  // namespace lockstep::sim::detail
