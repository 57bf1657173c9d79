// Lookups: addresses of hosts by name, from the system's resolver but not at its pace. A name
// server that does not answer holds getaddrinfo for half a minute and more, so each name is asked
// for in a thread of its own. Whoever asks waits for some time at most; the lookup goes on, and who
// asks for the same name later gets its answer.
//
//   Lookups lookups;
//   if (const auto answer = lookups.find("node7", deadline)) use(answer->addresses);   // or
//   ->error
//
// Thread rule: any thread. A lookup under way holds up neither its owner nor the end of the
// process.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/mutex.h"
#include "sys/posix_socket.h"

namespace lockstep::sys {

class Lookups {
 public:
  struct Answer {
    int error = 0;                              // EAI_*; 0: found
    int system_error = 0;                       // errno, with EAI_SYSTEM
    std::vector<SocketAddress> addresses = {};  // each once, the best first; port 0
  };
  using Ask = std::function<Answer(const std::string& host)>;

  explicit Lookups(Ask ask = ask_system);

  /// Empty if there is no answer at the deadline. SystemError if no thread can be had.
  [[nodiscard]] std::optional<Answer> find(const std::string& host, Deadline deadline);

  /// Blocks as long as the system's resolver does.
  static Answer ask_system(const std::string& host);

 private:
  struct Pending;

  Ask ask_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Pending>> pending_ GUARDED_BY(mutex_);
};

}  // namespace lockstep::sys
