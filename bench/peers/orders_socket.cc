#include "bench/peers/orders_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

#include "bench/peers/process.h"

namespace lockstep::bench::peers {

int listen_at(const std::string& path) {
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, 16) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot listen at " + path);
  return listener;
}

bool readable(int descriptor, std::chrono::steady_clock::time_point until) {
  for (;;) {
    check_interrupted();
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
    if (poll(&wanted, 1, static_cast<int>(left.count())) > 0) return true;
  }
}

std::string tail(const std::string& path) {
  constexpr std::size_t kMost = 1500;
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.size() > kMost) text.erase(0, text.size() - kMost);
  return text;
}

}  // namespace lockstep::bench::peers
