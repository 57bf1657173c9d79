// The limit of open files of this process, `ulimit -n`.
#pragma once

#include <cstdint>

namespace lockstep::sys {

/// Raises the soft limit to `wanted`, or to the hard limit if that is less. A limit that is high
/// enough stays as it is. Returns the limit that holds now. Processes that are started later
/// inherit it.
std::uint64_t raise_descriptor_limit(std::uint64_t wanted) noexcept;

}  // namespace lockstep::sys
