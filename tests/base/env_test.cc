#include "base/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Env : public ::testing::Test {
 protected:
  void SetUp() override { TearDown(); }
  void TearDown() override {
    unsetenv("LOCKSTEP_LOG");
    unsetenv("LOCKSTEP_ALGORITHMS");
  }
};

TEST_F(Env, DefaultsWhenNothingIsSet) {
  const Environment environment = read_environment();
  EXPECT_EQ(environment.log_level, LogLevel::warning);
  EXPECT_THAT(environment.algorithms, IsEmpty());
}

TEST_F(Env, EveryLogLevelHasItsName) {
  const std::pair<const char*, LogLevel> names[] = {{"debug", LogLevel::debug},
                                                    {"info", LogLevel::info},
                                                    {"warning", LogLevel::warning},
                                                    {"error", LogLevel::error},
                                                    {"off", LogLevel::off}};
  for (const auto& [name, level] : names) {
    setenv("LOCKSTEP_LOG", name, 1);
    EXPECT_EQ(read_environment().log_level, level) << name;
  }
}

TEST_F(Env, UnknownLogLevelIsNamedAndIgnored) {
  setenv("LOCKSTEP_LOG", "loud", 1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(read_environment().log_level, LogLevel::warning);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("LOCKSTEP_LOG=loud"), HasSubstr("debug, info, warning, error, off")));
}

TEST_F(Env, AlgorithmsAreTakenAsTheyAre) {
  setenv("LOCKSTEP_ALGORITHMS", "all_reduce=direct:0-64K", 1);
  EXPECT_EQ(read_environment().algorithms, "all_reduce=direct:0-64K");
}

}  // namespace
}  // namespace lockstep
