// Every collective over every transport gives the bits that threads give (which the plan checker
// proves), and goes over the transport it should.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "tests/processes/cluster.h"
#include "tests/processes/same_bits.h"
#include "tests/processes/verdict.h"

namespace lockstep::processes {
namespace {

class SharedMemory : public testing::TestWithParam<int> {};

TEST_P(SharedMemory, OwnBuffers) {
  expect_same_bits({.ranks = GetParam(), .scenario = "exercise own"}, "shared memory");
}
TEST_P(SharedMemory, BuffersOfTheSession) {
  expect_same_bits({.ranks = GetParam(), .scenario = "exercise session"}, "shared memory");
}
INSTANTIATE_TEST_SUITE_P(Ranks, SharedMemory, testing::Values(2, 3, 4, 5, 8));

class Streams : public testing::TestWithParam<int> {};

TEST_P(Streams, Tcp) {
  expect_same_bits({.ranks = GetParam(), .scenario = "exercise own", .wire = Wire::tcp}, "tcp");
}
TEST_P(Streams, Tls) {
  expect_same_bits({.ranks = GetParam(), .scenario = "exercise own", .wire = Wire::tls}, "tls");
}
INSTANTIATE_TEST_SUITE_P(Ranks, Streams, testing::Values(2, 3, 4, 5, 8));

/// Once connected it is TCP: what differs is how connections begin.
class Plaintext : public testing::TestWithParam<int> {};

TEST_P(Plaintext, AuthenticatedThenPlain) {
  expect_same_bits({.ranks = GetParam(), .scenario = "exercise own", .wire = Wire::plaintext},
                   "tls, data in plain text");
}
INSTANTIATE_TEST_SUITE_P(Ranks, Plaintext, testing::Values(2, 5));

/// A rank alone moves nothing, whatever it is given.
class OneRank : public testing::TestWithParam<Wire> {};

TEST_P(OneRank, NeedsNoTransport) {
  for (const char* scenario : {"exercise own", "exercise session"}) {
    expect_same_bits({.ranks = 1, .scenario = scenario, .wire = GetParam()}, "threads");
  }
}
INSTANTIATE_TEST_SUITE_P(Over, OneRank, testing::Values(Wire::local, Wire::tcp, Wire::tls),
                         [](const auto& wire) { return to_string(wire.param); });

/// C21
class Ipv6 : public testing::TestWithParam<Wire> {};

TEST_P(Ipv6, WorksAlone) {
  ClusterOptions options{.ranks = 3, .scenario = "exercise own", .wire = GetParam()};
  for (const int port : free_ports(options.ranks)) {
    options.addresses.push_back("[::1]:" + std::to_string(port));
  }
  expect_same_bits(options, GetParam() == Wire::tls ? "tls" : "tcp");
}
INSTANTIATE_TEST_SUITE_P(Over, Ipv6, testing::Values(Wire::tcp, Wire::tls),
                         [](const auto& wire) { return to_string(wire.param); });

struct Layout {
  const char* name;
  std::vector<std::string> hosts;
};
class Mixed : public testing::TestWithParam<Layout> {};

TEST_P(Mixed, HostsOfSeveralRanks) {
  expect_same_bits({.ranks = static_cast<int>(GetParam().hosts.size()),
                    .scenario = "exercise own",
                    .wire = Wire::tls,
                    .hosts = GetParam().hosts},
                   "shared memory and tls");
}
/// Between every two ranks of a host the bytes go through the segment: both rings of the pair, each
/// of 256 KiB, have been filled, in the memory of this process, too.
TEST_P(Mixed, EveryPairOfAHostUsesItsSharedMemory) {
  constexpr int kPairKib = 2 * 256;
  const std::vector<std::string>& hosts = GetParam().hosts;
  ProcessCluster cluster({.ranks = static_cast<int>(hosts.size()),
                          .scenario = "share 1000000",
                          .wire = Wire::tcp,
                          .hosts = hosts});
  const auto outcomes = cluster.finish(std::chrono::seconds(20));
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::string& text = outcomes[rank].text;
    ASSERT_TRUE(outcomes[rank].ok()) << text;
    EXPECT_NE(text.find("by shared memory and tcp generation"), std::string::npos) << text;
    const auto neighbours = std::count(hosts.begin(), hosts.end(), hosts[rank]) - 1;
    const auto touched = number_after(text, "touched ");
    ASSERT_TRUE(touched.has_value()) << text;
    EXPECT_GE(*touched, neighbours * kPairKib) << "rank " << rank;
  }
}
INSTANTIATE_TEST_SUITE_P(Layouts, Mixed,
                         testing::Values(Layout{"TwoByTwo", {"a", "a", "b", "b"}},
                                         Layout{"TwoByThree", {"a", "a", "a", "b", "b", "b"}},
                                         Layout{"ThreeByTwo", {"a", "a", "b", "b", "c", "c"}},
                                         Layout{"Scattered", {"a", "b", "a", "b"}}),
                         [](const auto& layout) { return std::string(layout.param.name); });

}  // namespace
}  // namespace lockstep::processes
