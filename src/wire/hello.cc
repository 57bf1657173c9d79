#include "wire/hello.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/printable.h"
#include "wire/bytes.h"

namespace lockstep::wire {
namespace {

constexpr std::int32_t kMostRanks = 1 << 20;

Status bad(std::string what) {
  return {ErrorKind::data_error, Code::data_loss, "unreadable greeting: " + std::move(what)};
}

}  // namespace

std::array<std::byte, sizeof(Hello)> encode(const Hello& hello) noexcept {
  std::array<std::byte, sizeof(Hello)> bytes;
  put(bytes.data(), hello);
  return bytes;
}

Status decode(std::span<const std::byte, sizeof(Hello)> bytes, Hello& hello) {
  const auto read = get<Hello>(bytes.data());
  if (read.protocol != kProtocol) {
    return bad(
        fmt::format("it speaks protocol {}, this program protocol {}; use the same version "
                    "of lockstep on all ranks",
                    read.protocol, kProtocol));
  }
  const auto purpose = static_cast<std::uint32_t>(read.purpose);
  if (purpose < static_cast<std::uint32_t>(Purpose::join) ||
      purpose > static_cast<std::uint32_t>(Purpose::claim)) {
    return bad(fmt::format("purpose {} is unknown", purpose));
  }
  if (read.size < 1 || read.size > kMostRanks || read.rank < 0 || read.rank >= read.size) {
    return bad(fmt::format("rank {} of {} is impossible", read.rank, read.size));
  }
  if (read.replicas < 1 || read.replicas > kMostRanks) {
    return bad(fmt::format("{} replicas are impossible", read.replicas));
  }
  // Logs show both as they are.
  if (!is_printable(read.host_name_text()) || !is_printable(read.address_text())) {
    return bad("its name or address is not text");
  }
  hello = read;
  return {};
}

std::string describe(const Hello& hello) {
  return fmt::format("rank {} (pid {} on {})", hello.rank, hello.pid, hello.host_name_text());
}

std::string describe_process(const Hello& hello) {
  return fmt::format("pid {} on {}, started {:%Y-%m-%d %H:%M:%S} UTC", hello.pid,
                     hello.host_name_text(), fmt::gmtime(static_cast<std::time_t>(hello.started)));
}

std::string version_text(std::uint32_t library) {
  return fmt::format("{}.{}.{}", library >> 16, library >> 8 & 255, library & 255);
}

}  // namespace lockstep::wire
