// A program whose OpenBLAS (fake_openblas.cc) does not know the processor, as a user would write
// it.
//
//   blas_kernels_probe chosen|kept "two words" ""
//
// chosen: the better kernels are in the environment afterwards, and in the library, which is loaded
// anew. kept: whatever was in the environment before is. Exit code 1 and a line if not.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "lockstep/blas_kernels.h"
#include "sys/openblas_kernels.h"
#include "tensor/blas.h"

namespace {

int fail(const char* what, const std::string& is, const std::string& expected) {
  std::printf("%s: \"%s\" instead of \"%s\"\n", what, is.c_str(), expected.c_str());
  return 1;
}

std::string environment() {
  const char* kernels = std::getenv("OPENBLAS_CORETYPE");
  return kernels != nullptr ? kernels : "";
}

}  // namespace

int main(int argc, char** argv) {
  const int before = static_cast<int>(::getpid());
  lockstep::choose_blas_kernels(argv);
  if (argc != 4) return fail("arguments", std::to_string(argc - 1), "3");
  if (argv[2] != std::string("two words")) return fail("argument 2", argv[2], "two words");
  if (argv[3] != std::string()) return fail("argument 3", argv[3], "");
  if (before != static_cast<int>(::getpid())) return fail("process", "another", "the same");
  const std::string better = lockstep::sys::better_openblas_kernels(
      "OpenBLAS 0.3.21 Prescott", lockstep::sys::Processor::here());
  const std::string expected = argv[1] == std::string("kept") ? "Nehalem" : better;
  if (environment() != expected) return fail("OPENBLAS_CORETYPE", environment(), expected);
  const std::string config = lockstep::tensor::Blas::in_use().version;
  const std::string in_use = expected.empty() ? "Prescott" : expected;
  if (config.find(in_use) == std::string::npos) return fail("kernels", config, in_use);
  std::printf("kernels are %s\n", in_use.c_str());
  return 0;
}
