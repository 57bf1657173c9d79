#include "coll/door.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/log.h"
#include "coll/protection.h"
#include "sys/descriptor_passing.h"

namespace lockstep::coll {
namespace {

constexpr std::size_t kMostCallers = 64;
constexpr auto kPatience = std::chrono::seconds(5);
constexpr auto kQuiet = std::chrono::seconds(10);  // between two lines about strangers

}  // namespace

Door::Door(sys::Network& network, const std::string& address, Guard guard)
    : listener_(network.listen(address)), guard_(std::move(guard)) {}

Door::~Door() = default;

void Door::accept(Time now) {
  for (;;) {
    std::unique_ptr<sys::Connection> connection;
    try {
      connection = listener_->accept();
    } catch (const Error& error) {
      // No descriptor is left: whoever is here already goes on, and the caller has to wait.
      if (now >= quiet_until_) log_warning("cannot let in a caller: {}", error.what());
      quiet_until_ = std::max(quiet_until_, now + kQuiet);
      return;
    }
    if (!connection) return;
    if (const auto process = sys::peer_process(*connection);
        process && process->uid != ::getuid()) {
      turn_away({.connection = std::move(connection), .greeting = nullptr, .since = now},
                fmt::format("it is a process of user {}", process->uid), now);
      continue;
    }
    if (guard_) connection = guard_(std::move(connection));
    if (callers_.size() == kMostCallers) {
      turn_away(callers_.front(), "too many callers have not said who they are", now);
      callers_.pop_front();
    }
    auto greeting = std::make_unique<Greeting>(*connection);
    callers_.push_back({std::move(connection), std::move(greeting), now});
  }
}

std::optional<Visitor> Door::next(Time now) {
  accept(now);
  for (auto at = callers_.begin(); at != callers_.end();) {
    Greeting& greeting = *at->greeting;
    std::string why;
    if (greeting.next()) {
      wire::Hello hello;
      Status readable(ErrorKind::data_error, Code::data_loss, "it did not greet first");
      if (greeting.type() == wire::FrameType::hello) {
        readable = wire::decode(greeting.payload().first<sizeof(wire::Hello)>(), hello);
      }
      const auto* known = dynamic_cast<const ProtectedConnection*>(at->connection.get());
      if (readable.ok() && known != nullptr && known->client() != hello.rank) {
        readable =
            Status(ErrorKind::config_error, Code::unauthenticated,
                   fmt::format("rank {} called itself rank {}", known->client(), hello.rank));
      }
      if (readable.ok()) {
        Visitor visitor{std::move(at->connection), hello};
        callers_.erase(at);
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
    turn_away(*at, why, now);
    at = callers_.erase(at);
  }
  return std::nullopt;
}

void Door::turn_away(const Caller& caller, const std::string& why, Time now) {
  last_refusal_ = fmt::format("the caller {}: {}", caller.connection->peer(), why);
  if (now < quiet_until_) {
    ++unsaid_;
    return;
  }
  const std::string more =
      unsaid_ > 0 ? fmt::format(" ({} others since the last such line)", unsaid_) : std::string();
  log_warning("turned away a caller at {} ({}): {}{}", listener_->address(),
              caller.connection->peer(), why, more);
  unsaid_ = 0;
  quiet_until_ = now + kQuiet;
}

}  // namespace lockstep::coll
