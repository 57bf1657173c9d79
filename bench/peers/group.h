// Group: the rank processes of one contestant. They live as long as the object, sleep between
// orders, and are gone after it whatever happened.
#pragma once

#include <sys/types.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "bench/peers/order.h"
#include "bench/peers/process.h"

namespace lockstep::bench::peers {

/// How a contestant is started: one command for all ranks (a launcher's), or one for each.
struct Launch {
  std::string name;
  int ranks = 2;
  std::vector<Command> commands;
  std::vector<std::string> environment;
};

/// A contestant did not start, gave a wrong result or fell silent; it is out of the race.
struct GroupFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Group {
 public:
  /// Blocks until all ranks are ready.
  Group(Launch launch, std::string directory);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// Seconds of a call, for each stretch: from the first rank's start to the last rank's end.
  std::vector<double> measure(const Order& order);
  /// Lets the ranks free the memory of earlier jobs.
  void forget();

 private:
  struct Rank {
    int socket = -1;
    pid_t process = -1;
  };
  void start();
  void send_all(const Order& order);
  Answer receive(Rank& rank);
  void check_children();
  void stop() noexcept;
  [[noreturn]] void fail(const std::string& what);

  Launch launch_;
  std::string directory_;
  std::vector<Child> children_;
  std::vector<Rank> ranks_;
};

}  // namespace lockstep::bench::peers
