// CommunicationOptions: how a cross-device op moves data between workers. Wrong values are refused
// where they are written down.
//
//   ops.reduce(ReduceOp::sum, value, value, {.bytes_per_pack = 50 << 20, .timeout_seconds = 30});
//   CommunicationOptions{.implementation = "Ring"};
//
// Given to a single call, what is not a default wins over the op's own options. Within one process
// nothing is sent, and they change nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

/// What carries collectives between workers. automatic and ring are the host's collectives, which
/// add in the fixed order; nccl and mpi where they are not built give one warning and the same.
class Communication {
 public:
  enum Value : std::uint8_t { automatic, ring, nccl, mpi };

  Communication(Value value) noexcept : value_(value) {}
  /// "auto", "ring", "nccl", "mpi" in any case; InvalidUsage for another word.
  Communication(std::string_view word);
  Communication(const char* word) : Communication(std::string_view(word)) {}

  operator Value() const noexcept { return value_; }
  [[nodiscard]] std::string_view name() const noexcept;

 private:
  Value value_;
};

/// Bytes, 0 or more; InvalidUsage for a negative number.
class PackBytes {
 public:
  PackBytes(std::int64_t bytes);
  operator std::int64_t() const noexcept { return bytes_; }

 private:
  std::int64_t bytes_;
};

/// Seconds, or nothing. 0 is none but the session's own, which ends an operation that does not
/// move; InvalidUsage for a negative number.
class TimeoutSeconds {
 public:
  TimeoutSeconds() = default;
  TimeoutSeconds(std::nullopt_t) noexcept {}
  TimeoutSeconds(double seconds);
  [[nodiscard]] const std::optional<double>& value() const noexcept { return seconds_; }

 private:
  std::optional<double> seconds_;
};

struct CommunicationOptions {
  /// Tensors are sent together until a pack is larger than this; 0: all in one.
  PackBytes bytes_per_pack = 0;
  /// One deadline for the whole call, from entry.
  TimeoutSeconds timeout_seconds = {};
  Communication implementation = Communication::automatic;

  /// These options, replaced by whatever is not a default in `call`.
  [[nodiscard]] CommunicationOptions merged(const CommunicationOptions& call) const;
};

/// The older name of two of them.
struct CollectiveHints {
  PackBytes bytes_per_pack = 0;
  TimeoutSeconds timeout_seconds = {};

  operator CommunicationOptions() const { return {bytes_per_pack, timeout_seconds}; }
};

}  // namespace lockstep
