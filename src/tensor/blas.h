// The BLAS that libtorch multiplies matrices with, found in the running process.
//
// It decides whether replicas can be threads: OpenBLAS with threads of its own uses all cores from
// each lane and makes the lanes wait for each other, and the reference BLAS is many times slower
// than all others. Which one is in use is the system's choice (Debian: its alternatives), and
// lockstep leaves it alone: it limits the threads of the one it finds and warns if that is not
// enough. operator_threads.h sets the numbers.
//
//   Blas::in_use().describe();   // OpenBLAS (pthreads), /usr/lib/.../libblas.so.3, OpenBLAS 0.3.21
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sys/openblas_kernels.h"

namespace lockstep::tensor {

enum class BlasKind : std::uint8_t {
  openblas_pthread,
  openblas_openmp,
  openblas_serial,
  blis,
  mkl,
  reference,
  unknown,
};
std::string_view to_string(BlasKind kind) noexcept;

struct Blas {
  BlasKind kind = BlasKind::unknown;
  std::string path = {};     // of the library, symbolic links followed; empty if there is none
  std::string version = {};  // as the library tells it; part of what makes bits equal

  /// The library that sgemm_ comes from in this process.
  static Blas in_use();
  [[nodiscard]] std::string describe() const;
};

struct BlasUse {
  int lanes = 1;
  int threads_per_lane = 1;
  sys::Processor processor = {};

  /// On this processor.
  static BlasUse here(int lanes, int threads_per_lane);
};

/// True if the threads of a call are one number of the process. Others follow OpenMP's number or
/// have one of the calling thread, or have no threads.
[[nodiscard]] bool has_process_wide_threads(BlasKind kind) noexcept;
/// That number of the BLAS in use; 0 if it has none. `set` does nothing then.
[[nodiscard]] int blas_threads();
void set_blas_threads(int count);

/// What is wrong with `blas` for this use, and what to do; empty if nothing is.
std::string blas_advice(const Blas& blas, BlasUse use);

/// Logs blas_advice() as a warning, once per process.
void warn_about_blas(BlasUse use);

}  // namespace lockstep::tensor
