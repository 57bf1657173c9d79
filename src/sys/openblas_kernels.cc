#include "sys/openblas_kernels.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>

namespace lockstep::sys {
namespace {

constexpr const char* kOpenblasThreads = "OPENBLAS_NUM_THREADS";

/// Without AVX2, in OpenBLAS's spelling.
constexpr std::array<std::string_view, 15> kOldKernels = {
    "Katmai",  "Coppermine", "Northwood",    "Prescott",  "Banias",
    "Core2",   "Penryn",     "Dunnington",   "Nehalem",   "Athlon",
    "Opteron", "Barcelona",  "Opteron_SSE3", "Bulldozer", "Sandybridge"};

}  // namespace

Processor Processor::here() {
  Processor processor;
#if defined(__x86_64__)
  processor.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  processor.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
  return processor;
}

std::string better_openblas_kernels(std::string_view config, Processor processor) {
  if (!processor.avx2) return {};
  std::istringstream words{std::string(config)};
  for (std::string word; words >> word;) {
    if (std::find(kOldKernels.begin(), kOldKernels.end(), word) != kOldKernels.end()) {
      return processor.avx512 ? "SkylakeX" : "Haswell";
    }
  }
  return {};
}

std::string better_openblas_kernels_here() {
  const Processor processor = Processor::here();
  if (std::getenv(kOpenblasKernels) != nullptr || !processor.avx2) return {};
  // Without threads of its own, which it might not be allowed to start. Never closed: it does not
  // expect to be.
  const char* const threads = std::getenv(kOpenblasThreads);
  const std::string before = threads != nullptr ? threads : "";
  ::setenv(kOpenblasThreads, "1", 1);
  void* const library = dlopen("libblas.so.3", RTLD_LAZY | RTLD_LOCAL);
  if (threads != nullptr) {
    ::setenv(kOpenblasThreads, before.c_str(), 1);
  } else {
    ::unsetenv(kOpenblasThreads);
  }
  if (library == nullptr) return {};
  auto* config = reinterpret_cast<const char* (*)()>(dlsym(library, "openblas_get_config"));
  return config != nullptr ? better_openblas_kernels(config(), processor) : std::string();
}

}  // namespace lockstep::sys
