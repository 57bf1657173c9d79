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
    unsetenv("LOCKSTEP_COSTS");
    unsetenv("LOCKSTEP_HISTORY_DIR");
    unsetenv("LOCKSTEP_ENGINE");
    unsetenv("MALLOC_TRIM_THRESHOLD_");
    unsetenv("GLIBC_TUNABLES");
  }
};

TEST_F(Env, DefaultsWhenNothingIsSet) {
  const Environment environment = read_environment();
  EXPECT_EQ(environment.log_level, LogLevel::warning);
  EXPECT_THAT(environment.algorithms, IsEmpty());
  EXPECT_EQ(environment.engine, coll::Engine::automatic);
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

TEST_F(Env, AlgorithmsCostsAndDirectoriesAreTakenAsTheyAre) {
  setenv("LOCKSTEP_ALGORITHMS", "all_reduce=direct:0-64K", 1);
  setenv("LOCKSTEP_COSTS", "tcp.alpha=7", 1);
  setenv("LOCKSTEP_HISTORY_DIR", "/somewhere", 1);
  EXPECT_EQ(read_environment().algorithms, "all_reduce=direct:0-64K");
  EXPECT_EQ(read_environment().costs, "tcp.alpha=7");
  EXPECT_EQ(read_environment().history_dir, "/somewhere");
}

TEST_F(Env, EnginesHaveNamesAndOthersAreIgnored) {
  setenv("LOCKSTEP_ENGINE", "mpi", 1);
  EXPECT_EQ(read_environment().engine, coll::Engine::mpi);
  setenv("LOCKSTEP_ENGINE", "host", 1);
  EXPECT_EQ(read_environment().engine, coll::Engine::host);
  setenv("LOCKSTEP_ENGINE", "steam", 1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(read_environment().engine, coll::Engine::automatic);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("LOCKSTEP_ENGINE=steam"));
}

TEST_F(Env, AllocatorsThatTheUserTunedAreSeen) {
  EXPECT_FALSE(read_environment().allocator_is_tuned);
  setenv("GLIBC_TUNABLES", "glibc.rtld.nns=4", 1);
  EXPECT_FALSE(read_environment().allocator_is_tuned);
  setenv("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=65536", 1);
  EXPECT_TRUE(read_environment().allocator_is_tuned);
  unsetenv("GLIBC_TUNABLES");
  setenv("MALLOC_TRIM_THRESHOLD_", "65536", 1);
  EXPECT_TRUE(read_environment().allocator_is_tuned);
}

}  // namespace
}  // namespace lockstep
