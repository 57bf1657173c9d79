// Open MPI's ranks talk to their launcher over TCP on the loopback interface (PMIx), and a rank in
// a network namespace of its own has another loopback. So the first contact is made in the network
// the process was started in: this function stands in front of the library's, since the program's
// own symbols are found first. A socket stays in the namespace it was made in, and PMIx's thread in
// that of the thread that starts it.
#include <dlfcn.h>
#include <sched.h>

#include <cstddef>

#include "bench/peers/rank_main.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the library's function.
extern "C" __attribute__((visibility("default"))) int PMIx_Init(void* process, void* info,
                                                                std::size_t count) {
  using Init = int (*)(void*, void*, std::size_t);
  void* library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_NOLOAD);
  const auto init = library ? reinterpret_cast<Init>(dlsym(library, "PMIx_Init")) : nullptr;
  if (init == nullptr) return -1;
  const int first = lockstep::bench::peers::first_network();
  if (first >= 0 && setns(first, CLONE_NEWNET) != 0) return -1;
  const int status = init(process, info, count);
  if (first >= 0 && setns(lockstep::bench::peers::entered_network(), CLONE_NEWNET) != 0) return -1;
  return status;
}
