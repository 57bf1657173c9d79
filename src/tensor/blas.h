// The BLAS that libtorch multiplies matrices with, found in the running process.
//
// It decides whether replicas can be threads: OpenBLAS with threads of its own uses all cores from
// each lane and makes the lanes wait for each other, and the reference BLAS is many times slower
// than all others. Which one is in use is the system's choice (Debian: its alternatives), and
// lockstep leaves it alone: it limits the threads of the one it finds and warns if that is not
// enough.
//
//   prepare_blas({.lanes = 2, .threads_per_lane = 1});
//   Blas::in_use().describe();   // OpenBLAS (pthreads), /usr/lib/.../libblas.so.3, OpenBLAS 0.3.21
//
// Thread-safe, but the number of threads is the process's: set it before lanes multiply.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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
  bool avx2 = false;  // what the processor has
  bool avx512 = false;

  /// On this processor.
  static BlasUse here(int lanes, int threads_per_lane);
};

/// Tells the BLAS in use how many threads one call may take. False if it cannot be told (it has no
/// threads, or is unknown).
bool set_blas_threads(int threads);

/// What is wrong with `blas` for this use, and what to do; empty if nothing is.
std::string blas_advice(const Blas& blas, BlasUse use);

/// Sets the threads, and logs blas_advice() as a warning once per process.
void prepare_blas(BlasUse use);

}  // namespace lockstep::tensor
