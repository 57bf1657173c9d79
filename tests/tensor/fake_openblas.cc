// An OpenBLAS with threads of its own that does not know the processor, inside the program: found
// before the real one. It multiplies nothing.
#include <atomic>
#include <cstdlib>
#include <string>

namespace {
std::atomic<int> threads = 8;
}

extern "C" {

void sgemm_() {}

int openblas_get_parallel() { return 1; }  // pthreads
int openblas_get_num_threads() { return threads.load(); }
void openblas_set_num_threads(int count) { threads.store(count); }

/// The kernels are those of OPENBLAS_CORETYPE, as in the real one.
const char* openblas_get_config() {
  static const std::string config = [] {
    const char* chosen = std::getenv("OPENBLAS_CORETYPE");
    return std::string("OpenBLAS 0.3.21 DYNAMIC_ARCH ") +
           (chosen != nullptr ? chosen : "Prescott") + " MAX_THREADS=64";
  }();
  return config.c_str();
}

}  // extern "C"
