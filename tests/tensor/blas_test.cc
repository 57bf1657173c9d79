#include "tensor/blas.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "lockstep/log.h"

namespace lockstep::tensor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Blas, InUseIsRecognised) {
  const Blas blas = Blas::in_use();
  EXPECT_NE(blas.kind, BlasKind::unknown) << blas.describe();
  EXPECT_TRUE(std::filesystem::is_regular_file(blas.path)) << blas.path;
  EXPECT_FALSE(std::filesystem::is_symlink(blas.path)) << blas.path;
  EXPECT_THAT(blas.describe(), AllOf(HasSubstr(to_string(blas.kind)), HasSubstr(blas.path)));
}

TEST(Blas, NumberOfTheProcess) {
  const int before = blas_threads();
  if (!has_process_wide_threads(Blas::in_use().kind)) {
    EXPECT_EQ(before, 0);
    set_blas_threads(2);  // nothing to set
    EXPECT_EQ(blas_threads(), 0);
    return;
  }
  set_blas_threads(2);
  EXPECT_EQ(blas_threads(), 2);
  set_blas_threads(before);
  EXPECT_EQ(blas_threads(), before);
}

TEST(Blas, AdviceNamesThePackage) {
  const Blas reference = {.kind = BlasKind::reference, .path = "/x/libblas.so.3"};
  EXPECT_THAT(blas_advice(reference, {}),
              AllOf(HasSubstr("libopenblas0-openmp"), HasSubstr("/x/libblas.so.3")));
  const Blas openmp = {.kind = BlasKind::openblas_openmp};
  EXPECT_THAT(blas_advice(openmp, {.lanes = 2, .threads_per_lane = 1}), IsEmpty());
  EXPECT_THAT(blas_advice(openmp, {.lanes = 1, .threads_per_lane = 2}), IsEmpty());
  EXPECT_THAT(blas_advice(openmp, {.lanes = 2, .threads_per_lane = 2}), HasSubstr("2 lanes"));
  EXPECT_THAT(blas_advice({.kind = BlasKind::openblas_pthread}, {.lanes = 4}), IsEmpty());
}

TEST(Blas, KernelsOfAnOldProcessorAreToldOf) {
  const Blas old{.kind = BlasKind::openblas_openmp,
                 .path = "/x",
                 .version = "OpenBLAS 0.3.21 DYNAMIC_ARCH NO_AFFINITY Prescott MAX_THREADS=64"};
  EXPECT_THAT(blas_advice(old, {.processor = {.avx2 = true}}),
              HasSubstr("OPENBLAS_CORETYPE=Haswell"));
  EXPECT_THAT(blas_advice(old, {.processor = {.avx2 = true, .avx512 = true}}),
              HasSubstr("=SkylakeX"));
  EXPECT_THAT(blas_advice(old, {}), IsEmpty());
}

TEST(Blas, WarnsAtMostOnce) {
  int warnings = 0;
  set_log_sink([&](LogLevel level, std::string_view) { warnings += level == LogLevel::warning; });
  for (int i = 0; i < 3; ++i) warn_about_blas({.lanes = 2, .threads_per_lane = 2});
  set_log_sink({});
  const bool expected = !blas_advice(Blas::in_use(), {.lanes = 2, .threads_per_lane = 2}).empty();
  EXPECT_EQ(warnings, expected ? 1 : 0);
}

}  // namespace
}  // namespace lockstep::tensor
