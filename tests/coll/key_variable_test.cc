// What becomes of a key that is given in the environment.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "lockstep/coll/join.h"

namespace lockstep::coll {
namespace {

TEST(KeyVariable, F16IsRemovedOnceItIsRead) {
  const std::string key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
  ::setenv("LOCKSTEP_KEY", key.c_str(), 1);
  ::setenv("LOCKSTEP_RANK", "0", 1);
  ::setenv("LOCKSTEP_ADDRESSES", "node0:4000,node1:4000", 1);
  const char* in_memory = std::getenv("LOCKSTEP_KEY");
  EXPECT_EQ(join_options_from_environment().key, key);
  EXPECT_EQ(std::getenv("LOCKSTEP_KEY"), nullptr) << "children would inherit it";
  EXPECT_EQ(std::strlen(in_memory), 0U) << "/proc would show it";
  EXPECT_EQ(join_options_from_environment().key, key) << "whoever joins again still has it";
  ::unsetenv("LOCKSTEP_RANK");
  ::unsetenv("LOCKSTEP_ADDRESSES");
}

}  // namespace
}  // namespace lockstep::coll
