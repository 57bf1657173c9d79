// PosixNetwork: the real network. TCP over IPv4 and IPv6, and Unix sockets by path or by abstract
// name.
//
// Sockets are non-blocking, closed on exec, without SIGPIPE and without Nagle's delay. Numeric
// hosts and "localhost" (127.0.0.1) need no resolver; other names are looked up in the call, which
// waits for the answer for a limited time (Patience). Of several addresses of a name a listener
// takes the first that is this machine's and that others can reach; calls go to the same one until
// it does not answer, then to the next. A file left behind by a dead Unix listener is
// taken over; a living one is not. Any thread may call any member.
//
//   PosixNetwork network;
//   auto listener = network.listen("0.0.0.0:0");
//   auto connection = network.connect("node7:4000");
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "sys/net.h"

namespace lockstep::sys {

class Lookups;

class PosixNetwork final : public Network {
 public:
  /// How long a call waits for the address of a name. After it SystemError with
  /// Code::deadline_exceeded: the lookup goes on, and the same call may be made again.
  struct Patience {
    Duration listening = std::chrono::seconds(5);
    Duration connecting = std::chrono::seconds(5);
  };
  PosixNetwork();
  explicit PosixNetwork(const Patience& patience);
  PosixNetwork(const Patience& patience, std::unique_ptr<Lookups> lookups);
  ~PosixNetwork() override;
  PosixNetwork(const PosixNetwork&) = delete;
  PosixNetwork& operator=(const PosixNetwork&) = delete;

  std::unique_ptr<Listener> listen(const std::string& address) override;
  std::unique_ptr<Connection> connect(const std::string& address) override;
  std::unique_ptr<Poller> poller() override;

 private:
  [[nodiscard]] std::shared_ptr<std::atomic<unsigned>> turn_of(const std::string& host);

  Patience patience_;
  std::unique_ptr<Lookups> lookups_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<std::atomic<unsigned>>> turns_ GUARDED_BY(mutex_);
};

}  // namespace lockstep::sys
