#include "sys/delivery.h"

#include <linux/tcp.h>  // netinet/tcp.h knows no tcpi_bytes_acked
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace lockstep::sys {

std::optional<Delivery> delivery_of(int fd) noexcept {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  if (size < offsetof(tcp_info, tcpi_data_segs_in) + sizeof(info.tcpi_data_segs_in)) {
    return std::nullopt;  // Linux before 4.6
  }
  return Delivery{.waits = info.tcpi_unacked > 0,
                  .acknowledged = info.tcpi_bytes_acked,
                  .answers = std::uint64_t{info.tcpi_segs_in} - info.tcpi_data_segs_in,
                  .data = info.tcpi_data_segs_in};
}

}  // namespace lockstep::sys
