// Kernels of OpenBLAS: what OPENBLAS_CORETYPE should be on a processor that is newer than the
// library.
//
// OpenBLAS chooses kernels by the model of the processor when it is loaded. For a model that it
// does not know it takes some of twenty years ago, several times slower, whatever instructions the
// processor has. OPENBLAS_CORETYPE in the environment names others; it is read once, at loading.
// Kernels differ in their bits, so all ranks of a job should have the same.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::sys {

inline constexpr const char* kOpenblasKernels = "OPENBLAS_CORETYPE";

/// Instructions that make a difference.
struct Processor {
  bool avx2 = false;    // with FMA
  bool avx512 = false;  // F, BW, DQ and VL

  static Processor here();
};

/// The kernels for OPENBLAS_CORETYPE. `config` is what openblas_get_config() says. Empty: those in
/// use are right for the processor.
std::string better_openblas_kernels(std::string_view config, Processor processor);

/// The same for the BLAS that a program of this system would get (libblas.so.3). Loads it for
/// good: for a process with one thread that is about to become another program. Empty also if
/// OPENBLAS_CORETYPE is set.
std::string better_openblas_kernels_here();

}  // namespace lockstep::sys
