// Farewell: threads that outlive their owner, to say a last word to the other ranks. When the
// process ends, those that are leaving get a moment more; the others are stopped at once, since
// their peers are to learn that this process ended in the middle.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/status.h"

namespace lockstep::coll {

class Farewell {
 public:
  /// Starts a thread and keeps it. `leaving` tells whether it is about to end by itself.
  static void keep(std::string name, std::function<void(const std::stop_token&)> body,
                   std::function<void(const Status&)> on_error, std::function<bool()> leaving);
};

}  // namespace lockstep::coll
