#include "coll/door.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "coll/meeting.h"
#include "coll/protection.h"
#include "sys/descriptor_passing.h"
#include "sys/own_process.h"

namespace lockstep::coll {
namespace {

constexpr std::size_t kMostCallers = 64;
constexpr std::ptrdiff_t kMostOfOneHost = 32;
constexpr auto kPatience = std::chrono::seconds(5);
constexpr auto kFirstLook = std::chrono::milliseconds(1);
/// A caller that has proven the key has so much time for the rest, if somebody else needs its place.
constexpr auto kHandshake = std::chrono::seconds(1);
/// So many strangers within some kForget are a crowd: the door opens only every kPause.
constexpr double kCrowd = 32;
constexpr std::chrono::duration<double> kForget{0.5};
constexpr auto kPause = std::chrono::milliseconds(25);
constexpr int kBatch = 64;
constexpr int kCrowdBatch = 2;  // of a crowd that has said nothing and may have a key
constexpr auto kShortage = std::chrono::milliseconds(100);  // of descriptors
constexpr int kMostNoted = 16;  // reasons put into words between two lines about strangers
constexpr auto kQuiet = std::chrono::seconds(10);  // between two lines about strangers

/// Empty for a Unix socket: its callers are all of this machine and this user.
std::string host_of(const std::string& peer) {
  return is_unix(peer) ? std::string() : peer.substr(0, peer.rfind(':'));
}

/// ok if the caller is who it says: the key that it has proven to know is that of this rank, in this
/// generation.
Status as_authenticated(const sys::Connection& caller, const wire::Hello& hello) {
  const auto* known = dynamic_cast<const ProtectedConnection*>(&caller);
  if (known == nullptr) return {};
  if (known->client() != hello.rank) {
    return {ErrorKind::config_error, Code::unauthenticated,
            fmt::format("rank {} called itself rank {}", known->client(), hello.rank)};
  }
  const bool joins = hello.purpose == wire::Purpose::join || hello.purpose == wire::Purpose::claim;
  if (known->generation() != (joins ? 0 : hello.generation)) {
    return {ErrorKind::config_error, Code::unauthenticated,
            fmt::format("rank {} called in generation {} and greeted in generation {}", hello.rank,
                        known->generation(), hello.generation)};
  }
  return {};
}

}  // namespace

bool Visitor::acknowledge() const {
  Greeting greeting(*connection);
  greeting.send(wire::FrameType::accepted, {});
  return greeting.flush() && connection->error().ok();
}

Door::Door(sys::Network& network, const std::string& address, Guard guard)
    : listener_(network.listen(address)), guard_(std::move(guard)) {}

Door::~Door() = default;

void Door::accept(Time now) {
  crowd_ *= std::exp2(-std::chrono::duration<double>(now - crowd_at_) / kForget);
  crowd_at_ = now;
  for (int let_in = 0;; ++let_in) {
    // Those who are many wait for their turn in the system's queue.
    if (let_in == kBatch || crowd_ > kCrowd) closed_until_ = now + kPause;
    if (let_in == kBatch) return;
    try {
      if (!accept_one(let_in, now)) return;
    } catch (...) {
      // No descriptor or memory is left: whoever is here already goes on, and the caller has to
      // call again.
      const Status why = Status::from_current_exception();
      if (now >= quiet_until_) log_warning("cannot let in a caller: {}", why.message());
      quiet_until_ = std::max(quiet_until_, now + kQuiet);
      closed_until_ = now + kShortage;
      return;
    }
  }
}

bool Door::accept_one(int let_in, Time now) {
  std::unique_ptr<sys::Connection> connection = listener_->accept();
  if (!connection) return false;
  crowd_ += 1;
  if (const auto process = sys::peer_process(*connection); process && process->uid != ::getuid()) {
    turn_away(*connection, fmt::format("it is a process of user {}", process->uid), now);
    return true;
  }
  std::string host = host_of(connection->peer());
  if (guard_) connection = guard_(std::move(connection));
  auto greeting = std::make_unique<Greeting>(*connection, Greeting::Takes::hello);
  Caller caller{std::move(connection), std::move(greeting), std::move(host), now, now, kFirstLook};
  hear(caller);
  // To wait in the queue behind strangers would take longer than to call again.
  const bool is_one_of_a_crowd =
      guard_ && crowd_ > kCrowd && let_in >= kCrowdBatch && !has_proof(caller);
  if (is_one_of_a_crowd || !make_room(caller, now)) {
    ++unsaid_;
    return true;
  }
  callers_.push_back(std::move(caller));
  return true;
}

void Door::hear(Caller& caller) {
  if (!caller.greeted) caller.greeted = caller.greeting->next();
  if (!caller.in_crowd || !(guard_ ? has_proof(caller) : caller.greeted)) return;
  caller.in_crowd = false;
  crowd_ = std::max(0.0, crowd_ - 1);
}

void Door::hear_all(Time now) {
  if (heard_all_ == now) return;
  heard_all_ = now;
  for (Caller& caller : callers_) hear(caller);
}

bool Door::has_proof(const Caller& caller) const {
  if (!guard_) return caller.greeted || caller.greeting->promising();
  const auto* known = dynamic_cast<const ProtectedConnection*>(caller.connection.get());
  return known != nullptr ? known->key_proven() : caller.connection->is_open();
}

bool Door::is_authenticated(const Caller& caller) const {
  return guard_ ? caller.connection->is_open() : caller.greeted;
}

bool Door::is_full_for(const Caller& newcomer) const {
  if (is_authenticated(newcomer)) return false;
  std::size_t unauthenticated = 0;
  std::ptrdiff_t without_proof = 0;
  for (const Caller& caller : callers_) {
    if (!is_authenticated(caller)) ++unauthenticated;
    if (!has_proof(caller) && caller.host == newcomer.host) ++without_proof;
  }
  return unauthenticated >= kMostCallers ||
         (without_proof >= kMostOfOneHost && !newcomer.host.empty() && !has_proof(newcomer));
}

bool Door::make_room(const Caller& newcomer, Time now) {
  if (!is_full_for(newcomer)) return true;
  hear_all(now);
  // One that goes may not make room for all: the address may have its half, and all be full.
  for (int place = 0; place < 2 && is_full_for(newcomer); ++place) {
    const auto stranger_of = [&](bool of_host) {
      return std::find_if(callers_.begin(), callers_.end(), [&](const Caller& caller) {
        return !has_proof(caller) && (!of_host || caller.host == newcomer.host);
      });
    };
    const auto strangers_of_host = std::count_if(
        callers_.begin(), callers_.end(),
        [&](const Caller& caller) { return !has_proof(caller) && caller.host == newcomer.host; });
    const bool of_host = !newcomer.host.empty() && strangers_of_host >= kMostOfOneHost;
    auto goes = stranger_of(of_host);
    if (goes == callers_.end()) {
      goes = std::find_if(callers_.begin(), callers_.end(), [&](const Caller& caller) {
        return !is_authenticated(caller) && now - caller.since > kHandshake;
      });
    }
    if (goes == callers_.end()) return false;
    turn_away(*goes->connection, "too many callers have not said who they are", now);
    callers_.erase(goes);
  }
  return !is_full_for(newcomer);
}

Time Door::next_look() const noexcept {
  // Who came with a crowd is looked at when the door opens again: one wake-up for all.
  if (closed_until_ != Time{}) return closed_until_;
  Time next = Time::max();
  for (const Caller& caller : callers_) next = std::min(next, caller.look);
  return next;
}

Time Door::before_wait(sys::Poller& poller, Time now) {
  if (open(now)) {
    poller.watch(*listener_);
  } else {
    poller.forget(*listener_);
  }
  return next_look();
}

std::optional<Visitor> Door::next(Time now) {
  if (now != opened_) {
    if (!open(now)) return std::nullopt;
    opened_ = now;
    closed_until_ = Time{};
    accept(now);
  }
  for (auto at = callers_.begin(); at != callers_.end();) {
    if (now < at->look && !at->greeted) {
      ++at;
      continue;
    }
    at->look = now + at->pause;
    // The later ones of several fall together.
    if (at->pause > kPause) at->look += kPause - at->look.time_since_epoch() % kPause;
    hear(*at);
    // One that has proven the key answers within a round trip.
    const bool answers = guard_ && has_proof(*at);
    at->pause = answers ? kFirstLook : std::min<Duration>(2 * at->pause, kPatience / 2);
    Greeting& greeting = *at->greeting;
    std::string why;
    if (at->greeted) {
      wire::Hello hello;
      Status readable = wire::decode(greeting.payload().first<sizeof(wire::Hello)>(), hello);
      if (readable.ok()) readable = as_authenticated(*at->connection, hello);
      if (readable.ok()) {
        Visitor visitor{std::move(at->connection), hello};
        callers_.erase(at);
        return visitor;
      }
      // Another version of ours deserves an answer; a stranger cannot read it.
      why = with_program(readable.message());
      greeting.send(Status(ErrorKind::config_error, Code::failed_precondition, why));
      greeting.flush();
    } else if (greeting.over()) {
      why = greeting.how();
      if (greeting.foreign_version()) {
        why = with_program(why);
        // It cannot read more of the answer than its version. What it has sent is read, or the
        // system would tell it that the connection was reset.
        std::array<std::byte, wire::kMaxControlPayload> rest;
        (void)at->connection->read(rest);
        greeting.send(Status(ErrorKind::config_error, Code::failed_precondition, why));
        greeting.flush();
      }
    } else if (now - at->since > kPatience) {
      why = "it has not said who it is";
    } else {
      ++at;
      continue;
    }
    turn_away(*at->connection, why, now);
    at = callers_.erase(at);
  }
  return std::nullopt;
}

std::string Door::with_program(const std::string& why) const {
  return fmt::format("{}; the rank at {} runs {}", why, listener_->address(),
                     sys::process_binary());
}

void Door::turn_away(const sys::Connection& caller, const std::string& why, Time now) {
  if (now < quiet_until_) {
    ++unsaid_;
    if (unsaid_ > kMostNoted) return;
  }
  last_refusal_ = fmt::format("the caller {}: {}", caller.peer(), why);
  if (now < quiet_until_) return;
  const std::string more =
      unsaid_ > 0 ? fmt::format(" ({} others since the last such line)", unsaid_) : std::string();
  log_warning("turned away a caller at {} ({}): {}{}", listener_->address(), caller.peer(), why,
              more);
  unsaid_ = 0;
  quiet_until_ = now + kQuiet;
}

}  // namespace lockstep::coll
