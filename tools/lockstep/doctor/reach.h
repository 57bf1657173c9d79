// Reach: who can call whom. Every rank opens its own address for a while, calls all others and
// answers theirs with one line, so that what fails between two ranks is told before they join:
// nobody answers, the call is refused, or something else answers.
//
// A rank is done when it has reached everybody whose address is known, everybody has called it, and
// rank 0 has told it that the same holds there: what it opens next is no longer this.
// One object for one attempt, on the caller's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "doctor/finding.h"
#include "sys/net.h"

namespace lockstep::tool {

struct ReachOptions {
  std::vector<std::string> addresses;  // by rank; some may be empty
  int rank = 0;
  std::string version;
};

class Reach {
 public:
  explicit Reach(ReachOptions options);
  ~Reach();

  /// Opens the own address; false if it cannot be.
  bool open();
  /// Calls and answers until done or the deadline; false if somebody is missing.
  bool run(Deadline deadline);
  [[nodiscard]] const Findings& findings() const noexcept { return findings_; }

 private:
  struct Visit;
  struct Call;

  void accept_visitors();
  void serve(Visit& visit);
  void advance(Call& call);
  void await_release(Call& call);
  void judge(Call& call, const std::string& line);
  [[nodiscard]] bool done() const;
  [[nodiscard]] bool complete() const;
  [[nodiscard]] Finding finding_of(const Call& call) const;
  [[nodiscard]] int size() const noexcept { return static_cast<int>(options_.addresses.size()); }

  ReachOptions options_;
  std::string own_line_;
  std::unique_ptr<sys::Network> network_;
  std::unique_ptr<sys::Poller> poller_;
  std::unique_ptr<sys::Listener> listener_;
  std::vector<Visit> visits_;
  std::vector<Call> calls_;
  std::vector<bool> visited_;  // by rank
  Findings findings_;
};

}  // namespace lockstep::tool
