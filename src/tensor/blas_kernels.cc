#include "lockstep/blas_kernels.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "sys/openblas_kernels.h"
#include "tensor/blas.h"

namespace lockstep {

void choose_blas_kernels(char** argv) {
  if (std::getenv(sys::kOpenblasKernels) != nullptr) return;
  const std::string kernels =
      sys::better_openblas_kernels(tensor::Blas::in_use().version, sys::Processor::here());
  if (kernels.empty()) return;
  ::setenv(sys::kOpenblasKernels, kernels.c_str(), 1);
  // By its own name if that is known still: tools show it.
  constexpr const char* kSelf = "/proc/self/exe";
  std::error_code unknown;
  const std::filesystem::path program = std::filesystem::read_symlink(kSelf, unknown);
  if (!unknown) ::execv(program.c_str(), argv);
  ::execv(kSelf, argv);
  const int error = errno;
  ::unsetenv(sys::kOpenblasKernels);
  log_warning("cannot start the program anew with {}={}: {}; set it before the start",
              sys::kOpenblasKernels, kernels, std::generic_category().message(error));
}

}  // namespace lockstep
