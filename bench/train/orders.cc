#include "bench/train/orders.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>
#include <system_error>

namespace lockstep::bench::train {
namespace {

class Connection {
 public:
  explicit Connection(const std::string& path)
      : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (socket_ < 0 ||
        connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
      throw std::system_error(errno, std::generic_category(), "cannot connect to " + path);
  }
  ~Connection() { close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void say(const std::string& message) const {
    if (send(socket_, message.data(), message.size(), MSG_NOSIGNAL) < 0)
      throw std::system_error(errno, std::generic_category(), "cannot answer the driver");
  }
  /// Empty if the driver is gone.
  [[nodiscard]] std::string hear() const {
    std::array<char, 128> message{};
    const ssize_t got = recv(socket_, message.data(), message.size(), 0);
    return {message.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
  }

 private:
  int socket_;
};

}  // namespace

void carry_out_orders(const std::string& path, int rank, std::int64_t parameters,
                      const Steps& steps) {
  const Connection driver(path);
  driver.say(fmt::format("ready {} {}", rank, parameters));
  for (;;) {
    std::istringstream order(driver.hear());
    std::string word;
    int count = 0;
    if (!(order >> word >> count) || word != "steps") return;
    driver.say(fmt::format("done {}", steps(count)));
  }
}

}  // namespace lockstep::bench::train
