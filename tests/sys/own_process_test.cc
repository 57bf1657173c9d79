#include "sys/own_process.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

namespace lockstep::sys {
namespace {

TEST(OwnProcess, HasStartedAMomentAgo) {
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const auto age = now - static_cast<std::int64_t>(process_start());
  // The system counts its start in whole seconds. A debugger may hold the test.
  EXPECT_GE(age, -2);
  EXPECT_LE(age, 600);
}

TEST(OwnProcess, KnowsItsBinary) {
  EXPECT_EQ(process_binary(), std::filesystem::read_symlink("/proc/self/exe").string());
}

}  // namespace
}  // namespace lockstep::sys
