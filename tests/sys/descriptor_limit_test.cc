#include "sys/descriptor_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace lockstep::sys {
namespace {

class DescriptorLimit : public testing::Test {
 protected:
  DescriptorLimit() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{.rlim_cur = 64, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~DescriptorLimit() override { ::setrlimit(RLIMIT_NOFILE, &before_); }
  static rlim_t soft() {
    rlimit now{};
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &now), 0);
    return now.rlim_cur;
  }

  rlimit before_{};
};

TEST_F(DescriptorLimit, IsRaisedToWhatIsWanted) {
  EXPECT_EQ(raise_descriptor_limit(100), 100U);
  EXPECT_EQ(soft(), 100U);
}

TEST_F(DescriptorLimit, IsNeverLowered) {
  EXPECT_EQ(raise_descriptor_limit(10), 64U);
  EXPECT_EQ(soft(), 64U);
}

TEST_F(DescriptorLimit, EndsAtTheHardLimit) {
  EXPECT_EQ(raise_descriptor_limit(UINT64_MAX), before_.rlim_max);
  EXPECT_EQ(soft(), before_.rlim_max);
}

}  // namespace
}  // namespace lockstep::sys
