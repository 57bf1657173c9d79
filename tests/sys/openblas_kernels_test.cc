#include "sys/openblas_kernels.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace lockstep::sys {
namespace {

std::string config_of(const std::string& kernels) {
  return "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY USE_OPENMP " + kernels +
         " MAX_THREADS=64";
}

TEST(OpenblasKernels, OfAProcessorThatIsNotKnown) {
  for (const char* old : {"Prescott", "Core2", "Barcelona", "Nehalem", "Sandybridge"}) {
    EXPECT_EQ(better_openblas_kernels(config_of(old), {.avx2 = true}), "Haswell") << old;
    EXPECT_EQ(better_openblas_kernels(config_of(old), {.avx2 = true, .avx512 = true}), "SkylakeX");
    EXPECT_EQ(better_openblas_kernels(config_of(old), {}), "") << "an old processor";
  }
}

TEST(OpenblasKernels, OfAKnownProcessorAreRight) {
  for (const char* known : {"Haswell", "Zen", "SkylakeX", "Cooperlake", "SapphireRapids"}) {
    EXPECT_EQ(better_openblas_kernels(config_of(known), {.avx2 = true, .avx512 = true}), "");
  }
  EXPECT_EQ(better_openblas_kernels("", {.avx2 = true}), "") << "not OpenBLAS";
}

TEST(OpenblasKernels, TheUsersChoiceStays) {
  ASSERT_EQ(setenv(kOpenblasKernels, "Prescott", 1), 0);
  EXPECT_EQ(better_openblas_kernels_here(), "");
  ASSERT_EQ(unsetenv(kOpenblasKernels), 0);
}

}  // namespace
}  // namespace lockstep::sys
