// The mixed layout on what ranks take for two machines: a network namespace each, nothing faked by
// names. Needs root.
#include <gtest/gtest.h>

#include <string>

#include "tests/processes/same_bits.h"
#include "tests/processes/two_networks.h"

namespace lockstep::processes {
namespace {

class TwoMachines : public testing::TestWithParam<Wire> {
 protected:
  /// What ranks say that connects them, between the machines.
  static std::string between() {
    switch (GetParam()) {
      case Wire::tls:
        return "tls";
      case Wire::plaintext:
        return "tls, data in plain text";
      default:
        return "tcp";
    }
  }
};

TEST_P(TwoMachines, OfTwoRanks) {
  const TwoNetworks networks;
  expect_same_bits(networks.cluster("exercise own", 2, GetParam()),
                   "shared memory and " + between());
}

INSTANTIATE_TEST_SUITE_P(Over, TwoMachines, testing::Values(Wire::tcp, Wire::tls, Wire::plaintext),
                         [](const auto& wire) { return to_string(wire.param); });

}  // namespace
}  // namespace lockstep::processes
