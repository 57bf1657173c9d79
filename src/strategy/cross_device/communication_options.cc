#include "lockstep/communication_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "lockstep/error.h"
#include "strategy/words.h"

namespace lockstep {

namespace {
constexpr std::array<std::string_view, 4> kCommunications = {"auto", "ring", "nccl", "mpi"};
}

Communication::Communication(std::string_view word)
    : value_(static_cast<Value>(detail::index_of_word(word, kCommunications, "communication"))) {}

std::string_view Communication::name() const noexcept {
  return kCommunications[static_cast<std::size_t>(value_)];
}

PackBytes::PackBytes(std::int64_t bytes) : bytes_(bytes) {
  if (bytes < 0) {
    throw InvalidUsage(
        fmt::format("bytes_per_pack must be 0 (all in one pack) or more, not {}", bytes));
  }
}

TimeoutSeconds::TimeoutSeconds(double seconds) : seconds_(seconds) {
  if (!(seconds >= 0) || std::isinf(seconds)) {
    throw InvalidUsage(
        fmt::format("timeout_seconds must be 0 (no timeout) or more, not {}", seconds));
  }
}

CommunicationOptions CommunicationOptions::merged(const CommunicationOptions& call) const {
  CommunicationOptions both = *this;
  if (call.bytes_per_pack != 0) both.bytes_per_pack = call.bytes_per_pack;
  if (call.timeout_seconds.value()) both.timeout_seconds = call.timeout_seconds;
  if (call.implementation != Communication::automatic) both.implementation = call.implementation;
  return both;
}

}  // namespace lockstep
