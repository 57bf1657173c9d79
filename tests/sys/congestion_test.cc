#include "sys/congestion.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>

#include "sys/descriptor.h"
#include "sys/posix_net.h"
#include "sys/posix_socket.h"

namespace lockstep::sys {
namespace {

using namespace std::chrono_literals;

bool paces(const std::string& algorithm) { return algorithm.starts_with("bbr"); }

Descriptor tcp_socket() { return Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

std::string system_choice() { return congestion_control(tcp_socket().get()); }

void set(int fd, const std::string& algorithm) {
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, algorithm.data(),
               static_cast<socklen_t>(algorithm.size()));
}

TEST(CongestionControl, OnlyOneThatPacesIsReplaced) {
  const Descriptor socket = tcp_socket();
  set(socket.get(), "reno");
  choose_bursts(socket.get());
  EXPECT_EQ(congestion_control(socket.get()), "reno");

  set(socket.get(), "bbr");  // not every machine has it: then it stays reno, and must still do so
  choose_bursts(socket.get());
  EXPECT_FALSE(paces(congestion_control(socket.get())));
}

TEST(CongestionControl, OtherSocketsHaveNone) {
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  choose_bursts(socket.get());
  pace_if_far(socket.get(), 0s);
  EXPECT_EQ(congestion_control(socket.get()), "");
}

TEST(CongestionControl, NeighboursBurstAndFarPeersGetTheSystemsChoice) {
  PosixNetwork network;
  auto listener = network.listen("127.0.0.1:0");
  auto caller = network.connect(listener->address());
  auto poller = network.poller();
  poller->watch(*listener);
  ASSERT_TRUE(poller->wait(Deadline::after(10s)));
  auto called = listener->accept();
  ASSERT_NE(called, nullptr);
  poller->forget(*listener);
  for (auto* end : {caller.get(), called.get()}) {
    const std::byte hello{1};
    ASSERT_EQ(end->write({&hello, 1}).bytes, 1U);
    const int fd = dynamic_cast<PosixConnection&>(*end).fd();
    EXPECT_FALSE(paces(congestion_control(fd)));
    pace_if_far(fd, 1h);
    EXPECT_FALSE(paces(congestion_control(fd)));
    pace_if_far(fd, 0s);  // every distance is far
    EXPECT_EQ(congestion_control(fd), system_choice());
  }
}

}  // namespace
}  // namespace lockstep::sys
