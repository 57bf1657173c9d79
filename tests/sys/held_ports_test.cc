#include "sys/held_ports.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "lockstep/error.h"
#include "sys/posix_net.h"

namespace lockstep::sys {
namespace {

std::string at(std::uint16_t port) { return fmt::format("127.0.0.1:{}", port); }

TEST(HeldPorts, AreForThoseWhoAreToldTheNumber) {
  const HeldPorts ports(2);
  PosixNetwork network;
  const auto listener = network.listen(at(ports.numbers()[0]));
  EXPECT_NE(network.connect(listener->address()), nullptr);
  // Once somebody listens there, it is taken as ever.
  EXPECT_THROW((void)network.listen(listener->address()), SystemError);
}

/// Enough of both that some would meet by chance.
TEST(HeldPorts, AreGivenToNobodyWhoAsksForAny) {
  constexpr int kMany = 300;
  const HeldPorts ports(kMany);
  const std::set<std::uint16_t> held(ports.numbers().begin(), ports.numbers().end());
  EXPECT_EQ(held.size(), kMany);
  PosixNetwork network;
  std::vector<std::unique_ptr<Listener>> others;
  for (int i = 0; i < kMany; ++i) {
    others.push_back(network.listen("127.0.0.1:0"));
    const std::string address = others.back()->address();
    EXPECT_EQ(
        held.count(static_cast<std::uint16_t>(std::stoi(address.substr(address.find(':') + 1)))),
        0);
  }
}

}  // namespace
}  // namespace lockstep::sys
