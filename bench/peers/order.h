// What the driver asks of the ranks of a contestant, and what they answer. Both travel as they lie
// in memory over a Unix socket that keeps messages apart; all ends are on one machine and one
// build.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

namespace lockstep::bench::peers {

/// Whose memory is reduced: the caller's own pages, or memory of the session where there is such.
enum class MemoryKind : std::uint32_t { caller, session };

/// What one call reduces: one buffer, or the gradients of ResNet-50 in several ways.
enum class Workload : std::uint32_t {
  buffer,
  resnet50_one_by_one,
  resnet50_buckets,  // 4 MiB each, gradients lie in them: nothing is copied
  resnet50_batch,    // all tensors handed over at once
};

struct Job {
  Workload workload = Workload::buffer;
  MemoryKind memory = MemoryKind::caller;
  std::uint64_t bytes = 0;  // of a buffer

  friend auto operator<=>(const Job&, const Job&) = default;
};

/// Sums of f32, in place. `stretches` times: rewrite the buffers, meet, start the clock, `loops`
/// calls, stop the clock. With more than one loop the buffers are not touched in between.
struct Order {
  enum class Kind : std::uint32_t { measure, forget, quit };
  Kind kind = Kind::measure;
  Job job;
  std::uint32_t warmup = 1;  // calls before the first stretch
  std::uint32_t loops = 1;
  std::uint32_t stretches = 1;
};

inline constexpr std::uint32_t kMaxStretches = 64;

/// A rank's first message.
struct Hello {
  std::uint32_t rank = 0;
};

/// Times of CLOCK_MONOTONIC, which all ranks share.
struct Answer {
  struct Stretch {
    std::int64_t start_ns;
    std::int64_t end_ns;
  };
  std::uint32_t stretches = 0;
  std::array<char, 244> error{};  // empty: none
  std::array<Stretch, kMaxStretches> times{};
};

}  // namespace lockstep::bench::peers
