#include "sys/host_identity.h"

#include <gtest/gtest.h>

namespace lockstep::sys {
namespace {

TEST(HostNames, OfOneHost) {
  EXPECT_TRUE(same_host_name("node0", "node0"));
  EXPECT_TRUE(same_host_name("node0", "Node0"));
  EXPECT_TRUE(same_host_name("node0", "node0.example.org"));
  EXPECT_TRUE(same_host_name("node0.EXAMPLE.org", "node0"));
  EXPECT_TRUE(same_host_name("node0.example.org", "node0.example.org"));
}

TEST(HostNames, OfOthers) {
  EXPECT_FALSE(same_host_name("node0", "node1"));
  EXPECT_FALSE(same_host_name("node0", "node01"));
  EXPECT_FALSE(same_host_name("node0", "node"));
  EXPECT_FALSE(same_host_name("node0.a.example", "node0.b.example"));
  EXPECT_FALSE(same_host_name("10.0.0.7", "node0"));
}

}  // namespace
}  // namespace lockstep::sys
