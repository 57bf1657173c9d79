// PosixProcesses: real ones, started with posix_spawn and watched through a pidfd.
#pragma once

#include <memory>

#include "sys/proc.h"

namespace lockstep::sys {

class PosixProcesses final : public Processes {
 public:
  std::unique_ptr<Process> spawn(const Command& command) override;
};

/// Whether the process of that number, in this pid namespace, has not ended; one that nobody has
/// waited for yet has.
bool is_running(pid_t pid) noexcept;

}  // namespace lockstep::sys
