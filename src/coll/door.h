// Door: listens at one address and lets in who says what it should.
//
// A caller has one greeting's time to send a Hello and costs a few hundred bytes until it has, and
// what its guard takes (transport/tls.h). There are never more than some dozens of such callers,
// half of them of one address: when one more comes the oldest has to go (of that address, if it has
// its half) that has not shown yet that it knows the key, or the protocol where there is none. A
// caller that says nothing is looked at ever more rarely, and of a crowd only some are let in at a
// time (who has the key calls again), so that strangers cost little. At a Unix socket the caller
// must be a process of the same user. Garbage, silence and strangers are logged at a limited rate
// and disturb nobody.
//
// Never blocks. One thread.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "coll/greeting.h"
#include "sys/net.h"
#include "wire/hello.h"

namespace lockstep::coll {

struct Visitor {
  std::unique_ptr<sys::Connection> connection;
  wire::Hello hello;
};

class Door {
 public:
  /// Turns an accepted connection into one that has proven who it is (TLS); identity if absent.
  using Guard = std::function<std::unique_ptr<sys::Connection>(std::unique_ptr<sys::Connection>)>;

  /// SystemError if the address cannot be had.
  Door(sys::Network& network, const std::string& address, Guard guard = {});
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  /// The next caller whose Hello has arrived, if there is one now.
  std::optional<Visitor> next(Time now);
  /// When to ask again, even if nobody knocks.
  [[nodiscard]] Time next_look() const noexcept;
  /// False while there is a crowd: do not watch the listener, ask at next_look().
  [[nodiscard]] bool open(Time now) const noexcept { return now >= closed_until_; }
  /// Who was turned away last, and why; empty if nobody was.
  [[nodiscard]] const std::string& last_refusal() const noexcept { return last_refusal_; }
  [[nodiscard]] std::string address() const { return listener_->address(); }
  [[nodiscard]] sys::Listener& listener() noexcept { return *listener_; }

 private:
  struct Caller {
    std::unique_ptr<sys::Connection> connection;
    std::unique_ptr<Greeting> greeting;
    std::string host;
    Time since;
    Time look;       // not before
    Duration pause;  // between the next two looks
  };
  void accept(Time now);
  /// False if nobody waits. `let_in` were before.
  bool accept_one(int let_in, Time now);
  /// For one more caller of that host.
  void make_room(const std::string& host, Time now);
  void turn_away(const sys::Connection& caller, const std::string& why, Time now);

  std::unique_ptr<sys::Listener> listener_;
  Guard guard_;
  std::list<Caller> callers_;
  Time opened_{};
  Time closed_until_{};
  double crowd_ = 0;  // callers of late that turned out to be strangers, or have said nothing
  Time crowd_at_{};
  std::string last_refusal_;
  Time quiet_until_{};
  int unsaid_ = 0;
};

}  // namespace lockstep::coll
