// Ranks as threads of one process: a cluster inside a program, a test or a benchmark.
//
//   run_ranks(4, [](Session& group) {
//     std::vector<float> x(1000, float(group.rank()));
//     group.all_reduce(Op::sum, std::span(x));
//   });
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/coll/batch.h"
#include "lockstep/coll/session.h"

namespace lockstep::coll {

/// Where threads of this process meet to form groups. Thread-safe; copies are the same place.
class Hub {
 public:
  Hub();

  struct Seat {
    /// Threads that give the same name meet.
    std::string group = "world";
    int size = 1;
    /// This thread's rank; or leave it -1 and give a member name: ranks then follow the names'
    /// order.
    int rank = -1;
    std::string member = {};
    /// A label of the host this rank counts as being on, to try out layouts of several hosts.
    int host = 0;
    std::chrono::nanoseconds timeout = std::chrono::seconds(60);
    SessionOptions options = {};
  };
  /// Blocks until `size` ranks have joined. InternalError if another rank gave another size for
  /// that group (all of them get it, now and later), InvalidUsage for a rank out of range or taken,
  /// Timeout naming the missing ranks. When a group is complete, the next join under its name forms
  /// a new generation.
  [[nodiscard]] Session join(const Seat& seat);

  /// Threads waiting in join(), now and later, throw Cancelled with this reason.
  void abort(const std::string& reason);

 private:
  struct Shared;
  Session take_seat(const Seat& seat);
  std::shared_ptr<Shared> shared_;
};

/// Runs fn on `ranks` threads, each with its session of one group, and returns when all have
/// returned. If one throws, the generation ends, the others' waits throw, and the first exception
/// is thrown here.
void run_ranks(int ranks, const std::function<void(Session&)>& fn,
               const SessionOptions& options = {});

}  // namespace lockstep::coll
