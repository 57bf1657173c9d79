// What a rank says of a failure of its own: there is no memory, no descriptor or no thread left for
// it. The rank itself is to blame, whoever the operation was with.
#pragma once

#include <fmt/format.h>

#include <new>

#include "base/status.h"

namespace lockstep::transport {

/// Without memory for the text.
inline Status out_of_memory() noexcept {
  // Short enough to need none itself.
  return {ErrorKind::system_error, Code::resource_exhausted, "out of memory"};
}

/// Whether the process that says so is to blame, since it lacks memory or another resource.
inline bool is_own_shortage(const Status& why) noexcept {
  return why.kind() == ErrorKind::system_error && why.code() == Code::resource_exhausted &&
         why.culprits().empty();
}

/// The same cause with the rank's number in front, and the rank to blame; as it is if the rank is not
/// known yet (-1).
inline Status own_failure(const Status& why, int rank) noexcept {
  try {
    if (rank < 0) return why;
    return {why.kind(), why.code(), fmt::format("rank {}: {}", rank, why.message()), {rank}};
  } catch (...) {
    return out_of_memory();
  }
}

/// The exception in flight: call inside a catch block.
inline Status current_failure() noexcept {
  try {
    return Status::from_current_exception();
  } catch (...) {
    return out_of_memory();
  }
}

/// Runs `function`. If it throws for want of memory, SystemError (RESOURCE_EXHAUSTED) that names
/// the rank is thrown instead; other exceptions are let through.
template <class Function>
decltype(auto) naming_shortages(int rank, Function&& function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    raise(own_failure(out_of_memory(), rank));
  } catch (const SystemError&) {
    const Status why = current_failure();
    if (!is_own_shortage(why)) throw;
    raise(own_failure(why, rank));
  }
}

}  // namespace lockstep::transport
