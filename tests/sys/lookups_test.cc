// Names of hosts, asked of a resolver that takes its time.
#include "sys/lookups.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>

#include <atomic>
#include <memory>
#include <thread>

#include "base/gate.h"
#include "lockstep/error.h"
#include "sys/posix_net.h"

namespace lockstep::sys {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// Answers when it is told to: every name is this machine's.
struct SlowResolver {
  Gate gate;
  std::atomic<bool> answers = false;
  std::atomic<int> asked = 0;

  Lookups::Answer ask() {
    ++asked;
    gate.wait([&] { return answers.load(); }, Deadline::after(20s));
    return Lookups::ask_system("127.0.0.1");
  }
  void answer() {
    answers.store(true);
    gate.notify();
  }
};

Lookups::Ask asking(const std::shared_ptr<SlowResolver>& resolver) {
  return [resolver](const std::string&) { return resolver->ask(); };
}

TEST(Lookups, GiveTheResolversAnswer) {
  Lookups lookups([](const std::string& host) {
    return host == "here" ? Lookups::ask_system("::1") : Lookups::Answer{.error = EAI_NONAME};
  });
  const auto here = lookups.find("here", Deadline::after(10s));
  ASSERT_TRUE(here.has_value());
  EXPECT_EQ(here->error, 0);
  ASSERT_EQ(here->addresses.size(), 1U);
  EXPECT_EQ(here->addresses[0].family(), AF_INET6);
  const auto nowhere = lookups.find("nowhere", Deadline::after(10s));
  ASSERT_TRUE(nowhere.has_value());
  EXPECT_EQ(nowhere->error, EAI_NONAME);
}

TEST(Lookups, ALateAnswerIsForWhoAsksAgain) {
  const auto resolver = std::make_shared<SlowResolver>();
  Lookups lookups(asking(resolver));
  EXPECT_FALSE(lookups.find("node7", Deadline::after(20ms)).has_value());
  EXPECT_FALSE(lookups.find("node7", Deadline::after(20ms)).has_value());
  resolver->answer();
  const auto found = lookups.find("node7", Deadline::after(10s));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->addresses.at(0).family(), AF_INET);
  EXPECT_EQ(resolver->asked, 1);
  EXPECT_TRUE(lookups.find("node7", Deadline::after(10s)).has_value());
  EXPECT_EQ(resolver->asked, 2) << "an answer was kept";
}

TEST(Lookups, OneUnderWayHoldsUpNeitherOthersNorItsOwner) {
  const auto stuck = std::make_shared<SlowResolver>();
  {
    Lookups lookups([stuck](const std::string& host) {
      return host == "stuck" ? stuck->ask() : Lookups::ask_system("127.0.0.1");
    });
    EXPECT_FALSE(lookups.find("stuck", Deadline::after(20ms)).has_value());
    EXPECT_TRUE(lookups.find("other", Deadline::after(10s)).has_value());
  }
  EXPECT_FALSE(stuck->answers);  // and we are here
  stuck->answer();
  // The thread that asked lets go of it last, and can be joined then.
  const Deadline soon = Deadline::after(10s);
  while (stuck.use_count() > 1 && !soon.passed()) std::this_thread::yield();
  EXPECT_EQ(stuck.use_count(), 1);
}

TEST(Lookups, OfANetworkEndInTime) {
  const auto resolver = std::make_shared<SlowResolver>();
  PosixNetwork network({.listening = 20ms, .connecting = 20ms},
                       std::make_unique<Lookups>(asking(resolver)));
  for (const bool listening : {false, true}) {
    try {
      if (listening) {
        (void)network.listen("node7:0");
      } else {
        (void)network.connect("node7:4000");
      }
      ADD_FAILURE() << "nobody has answered";
    } catch (const SystemError& error) {
      EXPECT_EQ(error.code(), Code::deadline_exceeded);
      EXPECT_THAT(error.what(), HasSubstr("cannot look up the host of node7:"));
      EXPECT_THAT(error.what(), HasSubstr("no answer of the resolver within 0.0 s"));
    }
  }
  EXPECT_NE(network.listen("127.0.0.1:0"), nullptr) << "numbers need no resolver";
  EXPECT_NE(network.listen("[::1]:0"), nullptr);
  resolver->answer();
  std::unique_ptr<Listener> listener;
  const Deadline soon = Deadline::after(10s);
  while (!listener && !soon.passed()) {
    try {
      listener = network.listen("node7:0");
    } catch (const SystemError& error) {
      ASSERT_EQ(error.code(), Code::deadline_exceeded);
    }
  }
  ASSERT_NE(listener, nullptr);
  const std::string port = listener->address().substr(listener->address().rfind(':') + 1);
  EXPECT_NE(port, "0");
}

Lookups::Answer numbers(std::initializer_list<const char*> hosts) {
  Lookups::Answer answer;
  for (const char* host : hosts) {
    answer.addresses.push_back(Lookups::ask_system(host).addresses.at(0));
  }
  return answer;
}

/// A network in which every name has these addresses.
std::unique_ptr<PosixNetwork> network_where(std::initializer_list<const char*> hosts) {
  return std::make_unique<PosixNetwork>(
      PosixNetwork::Patience{},
      std::make_unique<Lookups>([answer = numbers(hosts)](const std::string&) { return answer; }));
}

/// Whether the call is answered; says at the end what it came to.
bool answered(Network& network, const std::string& address, std::string& how) {
  const auto connection = network.connect(address);
  const Deadline deadline = Deadline::after(10s);
  while (!connection->is_open() && connection->error().ok() && !deadline.passed()) {
    (void)connection->write({});
  }
  how = connection->is_open() ? connection->peer() : connection->error().message();
  return connection->is_open();
}

TEST(NamesWithSeveralAddresses, AreCalledUntilOneAnswers) {
  const auto network = network_where({"127.0.0.2", "127.0.0.3"});
  const auto listener = PosixNetwork().listen("127.0.0.3:0");
  const std::string port = listener->address().substr(listener->address().rfind(':') + 1);
  std::string how;
  EXPECT_FALSE(answered(*network, "node7:" + port, how));
  EXPECT_THAT(how, HasSubstr("connection to node7:" + port + " (127.0.0.2): Connection refused"));
  EXPECT_TRUE(answered(*network, "node7:" + port, how)) << how;
  EXPECT_EQ(how, "node7:" + port + " (127.0.0.3)");
  EXPECT_TRUE(answered(*network, "node7:" + port, how)) << "the one that answered is kept: " << how;
  EXPECT_FALSE(answered(*network, "node8:" + port, how)) << "each name has its own";
}

TEST(NamesWithSeveralAddresses, ListenWhereOthersCanReachThem) {
  // 203.0.113.0/24 is nobody's: it stands for another machine.
  const auto local = network_where({"203.0.113.1", "127.0.0.1"})->listen("node7:0");
  EXPECT_TRUE(local->is_loopback());
  const auto open = network_where({"127.0.0.1", "0.0.0.0"})->listen("node7:0");
  EXPECT_FALSE(open->is_loopback());
  EXPECT_THROW(network_where({"203.0.113.1", "203.0.113.2"})->listen("node7:0"), SystemError);
}

}  // namespace
}  // namespace lockstep::sys
