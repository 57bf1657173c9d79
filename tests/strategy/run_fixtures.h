// Strategies for the tests of run() and merge_call(), in both kinds of execution.
#pragma once

#include <stdexcept>

#include "fixtures.h"

namespace lockstep {

/// What tests throw in step and merge functions.
struct Planted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// run_test.cc instantiates it for the tests of all files.
class RunTest : public ::testing::TestWithParam<Execution> {
 protected:
  ~RunTest() override { expect_outside(); }
  [[nodiscard]] static bool sequential() { return GetParam() == Execution::sequential; }
  MirroredStrategy strategy{cpus(2, GetParam())};
  MirroredStrategy three{cpus(3, GetParam())};
};

}  // namespace lockstep
