// A look at every transport, in little time; transports_test.cc goes through all layouts.
#include <gtest/gtest.h>

#include "tests/processes/same_bits.h"

namespace lockstep::processes {
namespace {

TEST(Processes, OneNeedsNobody) {
  expect_same_bits({.ranks = 1, .scenario = "exercise own"}, "threads");
}
TEST(Processes, ShareMemory) {
  expect_same_bits({.ranks = 3, .scenario = "exercise own"}, "shared memory");
}
TEST(Processes, ReachBuffersOfTheSession) {
  expect_same_bits({.ranks = 2, .scenario = "exercise session"}, "shared memory");
}
TEST(Processes, SpeakTcp) {
  expect_same_bits({.ranks = 2, .scenario = "exercise own", .wire = Wire::tcp}, "tcp");
}
TEST(Processes, SpeakTls) {
  expect_same_bits({.ranks = 2, .scenario = "exercise own", .wire = Wire::tls}, "tls");
}
TEST(Processes, OfTwoHosts) {
  expect_same_bits(
      {.ranks = 4, .scenario = "exercise own", .wire = Wire::tls, .hosts = {"a", "a", "b", "b"}},
      "shared memory and tls");
}

}  // namespace
}  // namespace lockstep::processes
