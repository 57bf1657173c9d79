#include "sys/congestion.h"

#include <linux/tcp.h>  // netinet/tcp.h knows no tcpi_min_rtt
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <string_view>

#include "sys/descriptor.h"

namespace lockstep::sys {
namespace {

bool choose(int fd, std::string_view algorithm) noexcept {
  return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, algorithm.data(),
                      static_cast<socklen_t>(algorithm.size())) == 0;
}

bool paces(std::string_view algorithm) { return algorithm.starts_with("bbr"); }

}  // namespace

std::string congestion_control(int fd) noexcept {
  char name[16] = {};  // the kernel's longest, with its zero
  socklen_t size = sizeof(name);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0) return {};
  return {name, ::strnlen(name, sizeof(name))};
}

void choose_bursts(int fd) noexcept {
  if (!paces(congestion_control(fd))) return;
  // Which ones a process may take is up to the machine; Linux always has reno.
  for (const std::string_view plain : {"cubic", "reno"}) {
    if (choose(fd, plain)) return;
  }
}

void pace_if_far(int fd, Duration far) noexcept {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
  if (std::chrono::microseconds(info.tcpi_min_rtt) < far) return;
  int family = AF_INET;
  size = sizeof(family);
  (void)::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size);
  const Descriptor fresh(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string system = fresh.valid() ? congestion_control(fresh.get()) : std::string();
  if (paces(system)) choose(fd, system);
}

}  // namespace lockstep::sys
