// What tells this process from others of the same rank: when it was started and from which file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace lockstep::sys {

/// In seconds since 1970; 0 if the system does not say.
std::uint32_t process_start();

/// The file this process runs, or "?".
std::string process_binary();

/// The nearest ancestor of this process whose command has that name (at most 15 bytes, as the kernel
/// keeps it); 0 if there is none or /proc does not show it.
pid_t ancestor_named(const std::string& command);

}  // namespace lockstep::sys
