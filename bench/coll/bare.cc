#include "bench/coll/bare.h"

namespace lockstep::bench {

// For each instruction set the compiler knows here, so that the loop is what the processor can do
// and not what the baseline can.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#endif
void add_both(float* x, float* y, std::size_t count) {
#if defined(__clang__)
#pragma clang loop vectorize(enable)
#elif defined(__GNUC__)
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < count; ++i) {
    const float sum = x[i] + y[i];
    x[i] = sum;
    y[i] = sum;
  }
}

}  // namespace lockstep::bench
