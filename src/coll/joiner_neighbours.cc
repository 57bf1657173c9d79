// The third step of joining: ranks that know each other from the roster meet, those of the control
// ring and those of one host, who share a segment.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "coll/joiner.h"
#include "coll/meeting.h"
#include "coll/outgoing_call.h"
#include "sys/descriptor_passing.h"
#include "wire/abort.h"

namespace lockstep::coll {
namespace {

using wire::Purpose;

/// Whether the socket takes a descriptor now; it has room unless its peer is stopped.
constexpr auto kLook = std::chrono::milliseconds(1);
/// The process that has this rank may have been started just before, and not have called rank 0 yet.
constexpr auto kPatienceForHolder = std::chrono::seconds(1);

// A neighbour that dies here breaks these connections, and so does one that gives up because of
// another. Who it was comes from rank 0, so a break is only a reason to go on waiting.
bool handed_over(sys::Connection& to, int descriptor) {
  try {
    return sys::send_descriptor(to, descriptor);
  } catch (const SystemError&) {
    return false;
  }
}

/// What it answered instead of taking the call.
Status refusal_in(const Greeting& greeting, int size) {
  wire::Abort abort;
  const bool readable = greeting.type() == wire::FrameType::abort &&
                        wire::decode(greeting.payload(), size, abort).ok();
  if (readable) return abort.cause;
  return {ErrorKind::data_error, Code::data_loss, "it did not answer as a rank does"};
}

std::optional<sys::Descriptor> taken_over(OutgoingCall& from) {
  if (!from.placed()) return std::nullopt;
  try {
    return sys::receive_descriptor(*from.connection());
  } catch (const SystemError& error) {
    if (error.code() == Code::resource_exhausted) throw;  // no room for it here
    from.give_up();
    return std::nullopt;
  }
}

}  // namespace

std::optional<Visitor> Joiner::take_visitor(Purpose purpose, int rank) {
  for (auto at = visitors_.begin(); at != visitors_.end(); ++at) {
    const wire::Hello& hello = at->hello;
    if (hello.purpose != purpose || hello.generation != roster_.generation || hello.rank != rank ||
        hello.incarnation != roster_.at(rank).incarnation) {
      continue;
    }
    Visitor visitor = std::move(*at);
    visitors_.erase(at);
    return visitor;
  }
  return std::nullopt;
}

std::unique_ptr<sys::Connection> Joiner::call(const std::string& address, int rank,
                                              Purpose purpose) {
  wire::Hello hello = roster_.own();
  hello.purpose = purpose;
  OutgoingCall outgoing(*poller_);
  std::unique_ptr<Greeting> greeting;
  std::string last = "no answer";
  until(
      [&] {
        const Time now = clock_.now();
        if (!outgoing.placed()) {
          const Time again = outgoing.since() + kCallAgain;
          if (now >= again) outgoing.place(connect(address, rank), now);
          if (!outgoing.placed()) {
            look_by(std::max(again, now + kLook));
            return false;
          }
          greeting = std::make_unique<Greeting>(*outgoing.connection());
          greeting->send(hello);
        }
        const bool answered = greeting->flush() && greeting->next();
        if (answered && greeting->type() == wire::FrameType::accepted) return true;
        const Status broken = outgoing.connection()->error();
        const bool dropped = outgoing.is_unanswered(now);
        if (answered || greeting->over() || !broken.ok() || dropped) {
          last = answered       ? refusal_in(*greeting, size()).message()
                 : dropped      ? unanswered(*outgoing.connection())
                 : !broken.ok() ? broken.message()
                                : greeting->how();
          greeting.reset();
          outgoing.give_up();
          look_by(now + kCallAgain);
          return false;
        }
        look_by(outgoing.watch(now));
        return false;
      },
      [&]() -> Lack {
        const std::string still = outgoing.placed() ? unanswered(*outgoing.connection()) : "";
        return {fmt::format("rank {} at {} does not answer: {}", rank, address,
                            still.empty() ? last : still),
                {rank}};
      });
  return outgoing.take();
}

std::string Joiner::ask_for_holder() {
  wire::Hello hello = own_;
  hello.purpose = Purpose::claim;
  hello.set_address(addresses_[static_cast<std::size_t>(own_.rank)]);
  OutgoingCall outgoing(*poller_);
  std::unique_ptr<Greeting> greeting;
  std::string holder;
  const Time end = std::min(deadline_.time(), clock_.now() + kPatienceForHolder);
  const auto answered = [&] {
    const Time now = clock_.now();
    look_by(end);
    if (now >= end) return true;
    if (!outgoing.placed() && now >= outgoing.since() + kCallAgain) {
      try {
        outgoing.place(connect(addresses_.front(), 0), now);
      } catch (const SystemError&) {
        outgoing.place(nullptr, now);  // no call is possible now
      }
      if (outgoing.placed()) {
        greeting = std::make_unique<Greeting>(*outgoing.connection());
        greeting->send(hello);
      }
    }
    if (outgoing.placed()) {
      const bool has_answer = greeting->flush() && greeting->next();
      if (has_answer) {
        const Status refusal = refusal_in(*greeting, size());
        if (refusal.code() != Code::unavailable) {
          holder = refusal.message();
          return true;
        }
      }
      const bool over = has_answer || greeting->over() || outgoing.is_unanswered(now) ||
                        !outgoing.connection()->error().ok();
      if (!over) {
        look_by(outgoing.watch(now));
        return false;
      }
      greeting.reset();
      outgoing.give_up();
    }
    look_by(std::max(outgoing.since() + kCallAgain, now + kLook));
    return false;
  };
  until(answered, []() -> Lack { return {}; });
  return holder;
}

void Joiner::meet_neighbours() {
  for (const int peer : control_peers(own_.rank, size())) {
    if (peer == 0 || own_.rank == 0) continue;  // has a line
    auto& place = control_[static_cast<std::size_t>(peer)];
    if (peer < own_.rank) {
      place = call(reachable_address(roster_, peer), peer, Purpose::control);
      continue;
    }
    until(
        [&] {
          auto visitor = take_visitor(Purpose::control, peer);
          if (visitor) place = std::move(visitor->connection);
          return place != nullptr;
        },
        [&]() -> Lack {
          return {fmt::format("{} has not called", wire::describe(roster_.at(peer))), {peer}};
        });
  }
}

void Joiner::share_memory() {
  const std::vector<int> neighbours = roster_.neighbours();
  const int ranks = static_cast<int>(neighbours.size());
  if (ranks == 1) return;
  const int leader = neighbours.front();
  const auto index =
      std::find(neighbours.begin(), neighbours.end(), own_.rank) - neighbours.begin();
  std::shared_ptr<sys::Segment> segment;
  if (own_.rank == leader) {
    segment = std::make_shared<sys::Segment>(
        sys::Segment::create("lockstep", transport::ShmHost::segment_bytes(ranks)));
    for (const int peer : neighbours) {
      if (peer == leader) continue;
      std::unique_ptr<sys::Connection> to;
      until(
          [&] {
            if (auto visitor = take_visitor(Purpose::segment, peer)) {
              to = std::move(visitor->connection);
            }
            if (to == nullptr) return false;
            look_by(clock_.now() + kLook);
            return handed_over(*to, segment->descriptor());
          },
          [&]() -> Lack {
            return {fmt::format("{} has not asked for the shared memory",
                                wire::describe(roster_.at(peer))),
                    {peer}};
          });
    }
  } else {
    const Time called = clock_.now();
    OutgoingCall from(*poller_);
    from.place(call(reachable_address(roster_, leader), leader, Purpose::segment), called);
    until(
        [&] {
          if (auto descriptor = taken_over(from)) {
            segment = std::make_shared<sys::Segment>(sys::Segment::map(std::move(*descriptor)));
          }
          look_by(from.watch(clock_.now()));
          return segment != nullptr;
        },
        [&]() -> Lack {
          return {fmt::format("{} has not handed over the shared memory",
                              wire::describe(roster_.at(leader))),
                  {leader}};
        });
    if (segment->size() != transport::ShmHost::segment_bytes(ranks)) {
      throw DataError("the shared memory of this host has another size than it should");
    }
  }
  host_ = std::make_shared<transport::ShmHost>(std::move(segment), static_cast<int>(index), ranks);
}

}  // namespace lockstep::coll
