// Door: listens at one address and lets in who says what it should.
//
// A caller has five seconds to send a Hello and costs a few hundred bytes until it has, and what its
// guard takes (transport/tls.h). At most 64 callers are unauthenticated at a time, and at most 32 of
// one address have not proven that they know the key (without a key: sent the header of a Hello).
// Every caller is read when it arrives and again before one of them has to go. Then the oldest goes
// that has proven nothing. One that has proven the key is dropped only if its handshake takes long.
// A caller that says nothing is read ever more rarely. In a crowd only callers that have something
// to say at once are kept, and a few others, so that strangers cost little.
//
// A rank that is dropped calls again: whoever takes a Visitor answers with acknowledge() or with a
// refusal, and a caller that gets neither has not been heard.
//
// At a Unix socket the caller must be a process of the same user. Garbage, silence and strangers
// are logged at a limited rate and disturb nobody.
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

  /// Tells the caller that its Hello was read and that the connection is kept. False if it does not
  /// get through: close the connection, and the caller calls again.
  [[nodiscard]] bool acknowledge() const;
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
  /// Makes the poller wake when somebody knocks, but for a crowd. Returns next_look().
  [[nodiscard]] Time before_wait(sys::Poller& poller, Time now);
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
    Time look;             // not before
    Duration pause;        // between the next two looks
    bool greeted = false;  // the Hello is whole: the greeting's payload
    bool in_crowd = true;  // counted in crowd_
  };
  void accept(Time now);
  /// False if nobody waits. `let_in` were before.
  bool accept_one(int let_in, Time now);
  /// Reads what has arrived.
  void hear(Caller& caller);
  void hear_all(Time now);
  /// It knows the key or, without one, how a Hello begins.
  [[nodiscard]] bool has_proof(const Caller& caller) const;
  /// Its handshake is done; without a key its Hello is whole.
  [[nodiscard]] bool is_authenticated(const Caller& caller) const;
  [[nodiscard]] bool is_full_for(const Caller& newcomer) const;
  /// False if somebody would have to go who should stay.
  bool make_room(const Caller& newcomer, Time now);
  /// The reason with the file of this rank's program, to compare versions.
  [[nodiscard]] std::string with_program(const std::string& why) const;
  void turn_away(const sys::Connection& caller, const std::string& why, Time now);

  std::unique_ptr<sys::Listener> listener_;
  Guard guard_;
  std::list<Caller> callers_;
  Time opened_{};
  Time closed_until_{};
  double crowd_ = 0;  // callers of late that turned out to be strangers, or have said nothing
  Time crowd_at_{};
  Time heard_all_{};
  std::string last_refusal_;
  Time quiet_until_{};
  int unsaid_ = 0;
};

}  // namespace lockstep::coll
