#include "sys/core_lease.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::sys {
namespace {

/// The first of four processor numbers that no machine has and no other process of these tests
/// uses: leases are seen by the whole machine, and tests run side by side.
int first_number() { return 1'000'000 + 4 * static_cast<int>(getpid()); }

TEST(CoreLease, EndsWithItsLife) {
  const int first = first_number();
  for (int i = 0; i < 2; ++i) {
    const auto lease = CoreLease::take({{first, first + 1}, {first + 2}});
    ASSERT_TRUE(lease.has_value());
    EXPECT_FALSE(CoreLease::take({{first + 2}}).has_value());
    EXPECT_TRUE(CoreLease::take({{first + 3}}).has_value());
  }
}

TEST(CoreLease, TakesAllOrNothing) {
  const int first = first_number();
  const auto other = CoreLease::take({{first + 1}});
  ASSERT_TRUE(other.has_value());
  EXPECT_FALSE(CoreLease::take({{first}, {first + 1}}).has_value());
  EXPECT_TRUE(CoreLease::take({{first}}).has_value()) << "what it got first is free again";
}

TEST(CoreLease, OfAnotherProcessIsSeen) {
  const int first = first_number();
  int ready[2];
  int over[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(over), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  char byte = 'x';
  if (child == 0) {
    close(over[1]);
    const auto lease = CoreLease::take({{first}});
    const bool told = write(ready[1], &byte, 1) == 1 && read(over[0], &byte, 1) == 0;
    _exit(lease && told ? 0 : 1);
  }
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(CoreLease::take({{first}}).has_value());
  close(over[1]);
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(CoreLease::take({{first}}).has_value());
  for (const int end : {ready[0], ready[1], over[0]}) close(end);
}

}  // namespace
}  // namespace lockstep::sys
