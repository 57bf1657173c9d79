#include "base/fork.h"

#include <pthread.h>

#include "lockstep/error.h"

namespace lockstep {

std::uint32_t fork_era() noexcept {
  // In the child there is one thread, and no lock may be taken.
  static const int registered = ::pthread_atfork(
      nullptr, nullptr, [] { detail::fork_count.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return forks();
}

void refuse_in_child() {
  throw InvalidUsage(
      "this process is the child of a fork, and what it uses belongs to its parent, whose threads "
      "and "
      "connections it does not have; start other programs with exec, and join in the process that "
      "works",
      Code::failed_precondition);
}

}  // namespace lockstep
