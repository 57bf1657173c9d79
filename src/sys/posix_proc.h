// PosixProcesses: real ones, started with posix_spawn and watched through a pidfd.
#pragma once

#include <memory>

#include "sys/proc.h"

namespace lockstep::sys {

class PosixProcesses final : public Processes {
 public:
  std::unique_ptr<Process> spawn(const Command& command) override;
};

}  // namespace lockstep::sys
