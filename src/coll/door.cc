#include "coll/door.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "coll/meeting.h"
#include "coll/protection.h"
#include "sys/descriptor_passing.h"

namespace lockstep::coll {
namespace {

constexpr std::size_t kMostCallers = 64;
constexpr std::ptrdiff_t kMostOfOneHost = 32;
constexpr auto kPatience = std::chrono::seconds(5);
constexpr auto kFirstLook = std::chrono::milliseconds(1);
/// So many strangers within some kForget are a crowd: the door opens only every kPause.
constexpr double kCrowd = 32;
constexpr std::chrono::duration<double> kForget{0.5};
constexpr auto kPause = std::chrono::milliseconds(25);
constexpr int kBatch = 64;
constexpr int kCrowdBatch = 2;  // of a crowd that would have to prove that it knows the key
constexpr auto kShortage = std::chrono::milliseconds(100);  // of descriptors
constexpr int kMostNoted = 16;  // reasons put into words between two lines about strangers
constexpr auto kQuiet = std::chrono::seconds(10);  // between two lines about strangers

/// Empty for a Unix socket: its callers are all of this machine and this user.
std::string host_of(const std::string& peer) {
  return is_unix(peer) ? std::string() : peer.substr(0, peer.rfind(':'));
}

}  // namespace

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
    // Without a key a rank that is sent away does not call again: those who are here are listened
    // to before somebody has to make room.
    if (!guard_ && let_in > 0 && std::ssize(callers_) >= kMostOfOneHost) return;
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
  if (guard_ && crowd_ > kCrowd && let_in >= kCrowdBatch) {
    // A handshake costs more than a caller's next try; in the queue he would wait for long.
    ++unsaid_;
    return true;
  }
  if (const auto process = sys::peer_process(*connection); process && process->uid != ::getuid()) {
    turn_away(*connection, fmt::format("it is a process of user {}", process->uid), now);
    return true;
  }
  std::string host = host_of(connection->peer());
  if (guard_) connection = guard_(std::move(connection));
  make_room(host, now);
  auto greeting = std::make_unique<Greeting>(*connection, Greeting::Takes::hello);
  callers_.push_back(
      {std::move(connection), std::move(greeting), std::move(host), now, now, kFirstLook});
  return true;
}

void Door::make_room(const std::string& host, Time now) {
  const auto is_of_host = [&](const Caller& caller) { return caller.host == host; };
  const bool of_host = !host.empty() && std::count_if(callers_.begin(), callers_.end(),
                                                      is_of_host) >= kMostOfOneHost;
  if (!of_host && callers_.size() < kMostCallers) return;
  const auto may_go = [&](const Caller& caller) { return !of_host || is_of_host(caller); };
  const auto stranger = std::find_if(callers_.begin(), callers_.end(), [&](const Caller& caller) {
    return may_go(caller) &&
           (guard_ ? !caller.connection->is_open() : !caller.greeting->promising());
  });
  const auto goes = stranger != callers_.end()
                        ? stranger
                        : std::find_if(callers_.begin(), callers_.end(), may_go);
  turn_away(*goes->connection, "too many callers have not said who they are", now);
  callers_.erase(goes);
}

Time Door::next_look() const noexcept {
  // Who came with a crowd is looked at when the door opens again: one wake-up for all.
  if (closed_until_ != Time{}) return closed_until_;
  Time next = Time::max();
  for (const Caller& caller : callers_) next = std::min(next, caller.look);
  return next;
}

std::optional<Visitor> Door::next(Time now) {
  if (now != opened_) {
    if (!open(now)) return std::nullopt;
    opened_ = now;
    closed_until_ = Time{};
    accept(now);
  }
  for (auto at = callers_.begin(); at != callers_.end();) {
    if (now < at->look) {
      ++at;
      continue;
    }
    at->look = now + at->pause;
    // The later ones of several fall together.
    if (at->pause > kPause) at->look += kPause - at->look.time_since_epoch() % kPause;
    at->pause = std::min<Duration>(2 * at->pause, kPatience / 2);
    Greeting& greeting = *at->greeting;
    std::string why;
    if (greeting.next()) {
      wire::Hello hello;
      Status readable = wire::decode(greeting.payload().first<sizeof(wire::Hello)>(), hello);
      const auto* known = dynamic_cast<const ProtectedConnection*>(at->connection.get());
      if (readable.ok() && known != nullptr && known->client() != hello.rank) {
        readable =
            Status(ErrorKind::config_error, Code::unauthenticated,
                   fmt::format("rank {} called itself rank {}", known->client(), hello.rank));
      }
      if (readable.ok()) {
        Visitor visitor{std::move(at->connection), hello};
        callers_.erase(at);
        crowd_ = std::max(0.0, crowd_ - 1);
        return visitor;
      }
      // Another version of ours deserves an answer; a stranger cannot read it.
      greeting.send(Status(ErrorKind::config_error, Code::failed_precondition, readable.message()));
      greeting.flush();
      why = readable.message();
    } else if (greeting.over()) {
      why = greeting.how();
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
