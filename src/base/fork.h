// Forks: whether this is still the process in which something was made. fork() copies memory, but
// no threads, and shares connections: what uses either belongs to the process that made it.
//
//   const std::uint32_t made_in = fork_era();            // once
//   check_process(made_in);                              // one load; InvalidUsage in a child
//
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep {

namespace detail {
inline std::atomic<std::uint32_t> fork_count = 0;
}

/// How many forks lie between this process and the one that first asked for fork_era().
inline std::uint32_t forks() noexcept { return detail::fork_count.load(std::memory_order_relaxed); }

/// The same, and from now on forks are counted.
std::uint32_t fork_era() noexcept;

[[noreturn]] void refuse_in_child();

/// InvalidUsage (FAILED_PRECONDITION) in a child of the process in which fork_era() gave this.
inline void check_process(std::uint32_t made_in) {
  if (made_in != forks()) refuse_in_child();
}

}  // namespace lockstep
