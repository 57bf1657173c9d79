// Matrix products at the processor's speed where OpenBLAS is older than the processor.
#pragma once

namespace lockstep {

/// Call it first in main(), with main's own argv:
///
///   int main(int, char** argv) {
///     lockstep::choose_blas_kernels(argv);
///
/// If the OpenBLAS of this process does not know the processor, it multiplies matrices several
/// times slower than it could, and cannot be told otherwise any more. Then this call sets
/// OPENBLAS_CORETYPE in the environment and starts the program anew in the same process, with the
/// same arguments (execv). Otherwise, and if OPENBLAS_CORETYPE is set already, it does nothing: a
/// program starts anew once at most. Call it before there are threads, and before anything is
/// written or opened that must not be twice.
void choose_blas_kernels(char** argv);

}  // namespace lockstep
