// Door: listens at one address and lets in who says what it should.
//
// A caller has one greeting's time to send a Hello and costs a few hundred bytes until it has;
// there are never more than some dozens of such callers, the oldest has to go when one more comes.
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
  /// Callers that have not said who they are yet.
  [[nodiscard]] bool has_callers() const noexcept { return !callers_.empty(); }
  /// Who was turned away last, and why; empty if nobody was.
  [[nodiscard]] const std::string& last_refusal() const noexcept { return last_refusal_; }
  [[nodiscard]] std::string address() const { return listener_->address(); }
  [[nodiscard]] sys::Listener& listener() noexcept { return *listener_; }

 private:
  struct Caller {
    std::unique_ptr<sys::Connection> connection;
    std::unique_ptr<Greeting> greeting;
    Time since;
  };
  void accept(Time now);
  void turn_away(const Caller& caller, const std::string& why, Time now);

  std::unique_ptr<sys::Listener> listener_;
  Guard guard_;
  std::list<Caller> callers_;
  std::string last_refusal_;
  Time quiet_until_{};
  int unsaid_ = 0;
};

}  // namespace lockstep::coll
