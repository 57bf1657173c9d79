// PosixNetwork: the real network. TCP over IPv4 and IPv6, and Unix sockets by path or by abstract
// name.
//
// Sockets are non-blocking, closed on exec, without SIGPIPE and without Nagle's delay. Numeric
// hosts and "localhost" (127.0.0.1) need no resolver; other names are looked up in the call and
// may block as long as the system's resolver does. A file left behind by a dead Unix listener is
// taken over; a living one is not. Any thread may call any member.
//
//   PosixNetwork network;
//   auto listener = network.listen("0.0.0.0:0");
//   auto connection = network.connect("node7:4000");
#pragma once

#include <memory>
#include <string>

#include "sys/net.h"

namespace lockstep::sys {

class PosixNetwork final : public Network {
 public:
  std::unique_ptr<Listener> listen(const std::string& address) override;
  std::unique_ptr<Connection> connect(const std::string& address) override;
  std::unique_ptr<Poller> poller() override;
};

/// Removes the file of "unix:path" if it is a socket whose listener is gone. For names that nobody
/// binds anew: a listener about to start looks like one that is gone.
void remove_stale_socket(const std::string& address);

}  // namespace lockstep::sys
