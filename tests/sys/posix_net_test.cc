// What only real sockets do.
#include "sys/posix_net.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "sys/address.h"
#include "sys/os_error.h"
#include "sys/posix_socket.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep::sys {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(OsError, SaysWhatCauseAndAdvice) {
  const Status status = os_error("cannot listen at 10.0.0.7:80", EADDRINUSE);
  EXPECT_EQ(status.kind(), ErrorKind::system_error);
  EXPECT_EQ(status.code(), Code::already_exists);
  EXPECT_EQ(
      status.message(),
      "cannot listen at 10.0.0.7:80: Address already in use (EADDRINUSE); another process has "
      "it: choose another address or stop that process");
  EXPECT_THAT(os_error("x", 99999).message(), HasSubstr("unknown error (99999)"));
}

TEST(OsError, NamesTheLimitOfOpenFilesAndHowManyThereAre) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 64, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Descriptor> held;
  int error = 0;
  while (error == 0) {
    held.emplace_back(::dup(STDERR_FILENO));
    if (!held.back().valid()) error = errno;
  }
  held.resize(held.size() - 3);  // a sanitizer needs two to look at memory
  const Status status = os_error("cannot accept", error);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), Code::resource_exhausted);
  EXPECT_THAT(status.message(), HasSubstr("(ulimit -n): it is 64, and 62 are open"));
}

/// The connection of who has called; null if nobody does within ten seconds.
std::unique_ptr<Connection> accepted(Listener& listener, Poller& poller) {
  poller.watch(listener);
  const bool called = poller.wait(Deadline::after(10s));
  poller.forget(listener);
  return called ? listener.accept() : nullptr;
}

/// A peer that does not read is no reason to think that packets are lost.
TEST(PosixNetwork, ADeliveryDoesNotWaitForAPeerThatDoesNotRead) {
  PosixNetwork network;
  auto listener = network.listen("127.0.0.1:0");
  auto near = network.connect(listener->address());
  const auto poller = network.poller();
  const auto far = accepted(*listener, *poller);
  ASSERT_NE(far, nullptr);
  const std::vector<std::byte> bytes(std::size_t{16} << 20);
  std::size_t written = 0;
  poller->watch(*near, Interest::write);
  // The kernel takes some more while it finds out that nobody reads.
  while (poller->wait(Deadline::after(100ms))) written += near->write(bytes).bytes;
  const auto delivery = near->delivery();
  ASSERT_TRUE(delivery.has_value());
  EXPECT_FALSE(delivery->waits);
  EXPECT_GT(delivery->acknowledged, 0U);
  EXPECT_LT(delivery->acknowledged, written);
  EXPECT_GT(delivery->answers, 0U);
  EXPECT_EQ(delivery->data, 0U);
  EXPECT_GT(far->delivery()->data, 0U);
  poller->forget(*near);
}

TEST(PosixNetwork, OfAUnixSocketTheDeliveryIsNotKnown) {
  const TemporaryDirectory directory;
  PosixNetwork network;
  auto listener = network.listen("unix:" + directory.path() + "/socket");
  auto near = network.connect(listener->address());
  EXPECT_FALSE(near->delivery().has_value());
}

TEST(PosixNetwork, SocketsDoNotBlockNorLeakIntoChildren) {
  PosixNetwork network;
  auto listener = network.listen("127.0.0.1:0");
  auto near = network.connect(listener->address());
  const auto poller = network.poller();
  const auto far = accepted(*listener, *poller);
  ASSERT_NE(far, nullptr);
  for (const int fd :
       {dynamic_cast<PosixListener&>(*listener).fd(), dynamic_cast<PosixConnection&>(*near).fd(),
        dynamic_cast<PosixConnection&>(*far).fd()}) {
    EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  }
  for (auto* end : {near.get(), far.get()}) {
    int on = 0;
    socklen_t size = sizeof(on);
    ASSERT_EQ(::getsockopt(dynamic_cast<PosixConnection&>(*end).fd(), IPPROTO_TCP, TCP_NODELAY, &on,
                           &size),
              0);
    EXPECT_EQ(on, 1);
  }
}

TEST(PosixNetwork, AForeignAddressIsRefused) {
  PosixNetwork network;
  try {
    network.listen("192.0.2.1:0");  // reserved for documentation: nobody's
    FAIL();
  } catch (const SystemError& e) {
    EXPECT_THAT(e.what(), HasSubstr("192.0.2.1:0"));
    EXPECT_THAT(e.what(), HasSubstr("not an address of this host"));
  }
}

TEST(PosixNetwork, AnUnknownHostIsNamed) {
  PosixNetwork network;
  try {
    network.connect("no-such-host.invalid:1");
    FAIL();
  } catch (const SystemError& e) {
    EXPECT_THAT(e.what(), HasSubstr("no-such-host.invalid:1"));
    EXPECT_THAT(e.what(), HasSubstr("check the name"));
  }
}

TEST(PosixNetwork, TakesOverTheFileOfADeadListenerOnly) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/socket";
  {
    // A listener that dies without cleaning up leaves its file.
    const Descriptor dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  struct stat file {};
  ASSERT_EQ(::stat(path.c_str(), &file), 0);
  PosixNetwork network;
  auto listener = network.listen("unix:" + path);
  EXPECT_THROW(network.listen("unix:" + path), SystemError);
  listener.reset();
  EXPECT_NE(::stat(path.c_str(), &file), 0) << "the file goes with the listener";

  const Descriptor plain(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  EXPECT_THROW(network.listen("unix:" + path), SystemError) << "not a socket: not ours";
  EXPECT_EQ(::stat(path.c_str(), &file), 0);
}

TEST(PosixNetwork, ACallerOfAUnixSocketIsNamedByItsProcess) {
  const TemporaryDirectory directory;
  PosixNetwork network;
  auto listener = network.listen("unix:" + directory.path() + "/socket");
  auto near = network.connect(listener->address());
  auto far = listener->accept();
  ASSERT_NE(far, nullptr);
  EXPECT_EQ(far->peer(), listener->address() + " (pid " + std::to_string(::getpid()) + ")");
}

/// A process that calls, forks a child which keeps the socket, says the child's pid and waits for
/// its own end.
class CallerWithChild {
 public:
  explicit CallerWithChild(const std::string& path) : pid_(::fork()) {
    if (pid_ != 0) return;
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    path.copy(where.sun_path, sizeof(where.sun_path) - 1);
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&where), sizeof(where)) != 0)
      ::_exit(1);
    ::alarm(20);  // both end by themselves if the test does not end them
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      for (;;) ::pause();
    }
    if (::write(socket, &child, sizeof(child)) != sizeof(child)) ::_exit(1);
    for (;;) ::pause();
  }
  ~CallerWithChild() {
    end();
    if (child_ > 0) ::kill(child_, SIGKILL);
  }
  CallerWithChild(const CallerWithChild&) = delete;
  CallerWithChild& operator=(const CallerWithChild&) = delete;

  /// Whose socket stays open.
  void has_child(pid_t child) { child_ = child; }
  void end() {
    if (ended_) return;
    ended_ = true;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
  pid_t child_ = 0;
  bool ended_ = false;
};

TEST(PosixNetwork, TheEndOfAWatchedPeerIsTheEndOfTheStream) {
  PosixNetwork network;
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/socket";
  auto listener = network.listen("unix:" + path);
  for (const bool watched : {true, false}) {
    SCOPED_TRACE(watched);
    CallerWithChild caller(path);
    auto poller = network.poller();
    poller->watch(*listener);
    ASSERT_TRUE(poller->wait(Deadline::after(10s)));
    auto connection = listener->accept();
    ASSERT_NE(connection, nullptr);
    poller->forget(*listener);
    if (watched) connection->watch_peer();
    poller->watch(*connection, Poller::Interest::read);
    ASSERT_TRUE(poller->wait(Deadline::after(10s)));
    // The child is known to live when its number comes; nothing is at its end yet.
    pid_t child = 0;
    ASSERT_EQ(connection->read(std::as_writable_bytes(std::span(&child, 1))).bytes, sizeof(child));
    caller.has_child(child);
    std::byte more[8];
    EXPECT_EQ(connection->read(more).state, Transfer::State::open);
    caller.end();
    EXPECT_EQ(poller->wait(Deadline::after(watched ? 10s : 50ms)), watched);
    EXPECT_EQ(connection->read(more).state,
              watched ? Transfer::State::closed : Transfer::State::open);
    poller->forget(*connection);
    EXPECT_FALSE(poller->wait(Deadline::after(1ms)));
  }
}

TEST(PosixNetwork, WhatAWatchedPeerWroteIsReadBeforeItsEnd) {
  PosixNetwork network;
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/socket";
  auto listener = network.listen("unix:" + path);
  CallerWithChild caller(path);
  auto poller = network.poller();
  poller->watch(*listener);
  ASSERT_TRUE(poller->wait(Deadline::after(10s)));
  auto connection = listener->accept();
  ASSERT_NE(connection, nullptr);
  poller->forget(*listener);
  connection->watch_peer();
  poller->watch(*connection, Poller::Interest::read);
  ASSERT_TRUE(poller->wait(Deadline::after(10s)));
  caller.end();
  pid_t child = 0;
  ASSERT_EQ(connection->read(std::as_writable_bytes(std::span(&child, 1))).bytes, sizeof(child));
  caller.has_child(child);
  std::byte more[8];
  EXPECT_EQ(connection->read(more).state, Transfer::State::closed);
  poller->forget(*connection);
}

TEST(PosixNetwork, AFullUnixQueueIsRetried) {
  PosixNetwork network;
  const std::string name = "@lockstep-queue-test-" + std::to_string(::getpid());
  const Descriptor narrow(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1, 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  ASSERT_EQ(::bind(narrow.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  name.copy(address.sun_path + 1, name.size() - 1, 1);
  ASSERT_EQ(::listen(narrow.get(), 0), 0);
  std::vector<std::unique_ptr<Connection>> callers;
  const std::byte some[1] = {};
  for (int i = 0; i < 4; ++i) {
    callers.push_back(network.connect("unix:" + name));
    EXPECT_EQ(callers.back()->write(some).state, Transfer::State::open);
  }
  EXPECT_EQ(callers.back()->write(some).bytes, 0U) << "the queue was not full";
  std::vector<Descriptor> accepted;
  for (int i = 0; i < 4; ++i) {
    for (auto& caller : callers) caller->write(some);
    accepted.emplace_back(::accept4(narrow.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    EXPECT_TRUE(accepted.back().valid());
  }
  EXPECT_EQ(callers.back()->write(some).bytes, 1U);
}

TEST(PosixNetwork, BytesBeforeAResetAreRead) {
  PosixNetwork network;
  auto listener = network.listen("127.0.0.1:0");
  auto poller = network.poller();
  auto near = network.connect(listener->address());
  auto far = accepted(*listener, *poller);
  ASSERT_NE(far, nullptr);
  const std::byte hello[5] = {};
  std::byte some[16];
  ASSERT_EQ(far->write(hello).bytes, 5U);
  // Lingering for no time turns the close into a reset.
  const linger none{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(dynamic_cast<PosixConnection&>(*far).fd(), SOL_SOCKET, SO_LINGER, &none,
               sizeof(none));
  far.reset();
  poller->watch(*near, Poller::Interest::read);
  std::size_t got = 0;
  Transfer moved;
  do {
    ASSERT_TRUE(poller->wait(Deadline::after(10s)));
    moved = near->read(some);
    got += moved.bytes;
  } while (moved.state == Transfer::State::open);
  EXPECT_EQ(got, 5U);
  EXPECT_EQ(moved.state, Transfer::State::broken);
  EXPECT_EQ(near->read(some).state, Transfer::State::broken)
      << "told once by the kernel, kept here";
  EXPECT_THAT(near->error().message(), HasSubstr("ECONNRESET"));
  poller->forget(*near);
}

/// Whoever closes our direction from outside closes only that: what the peer says is still heard.
TEST(PosixNetwork, AClosedDirectionOfOursDoesNotEndTheOther) {
  PosixNetwork network;
  auto listener = network.listen("127.0.0.1:0");
  auto near = network.connect(listener->address());
  const auto poller = network.poller();
  auto far = accepted(*listener, *poller);
  ASSERT_NE(far, nullptr);
  std::byte byte{1};
  ASSERT_EQ(::shutdown(dynamic_cast<PosixConnection&>(*near).fd(), SHUT_WR), 0);
  EXPECT_EQ(near->write({&byte, 1}).state, Transfer::State::broken);
  EXPECT_EQ(near->read({&byte, 1}).state, Transfer::State::open);
  poller->watch(*near, Poller::Interest::read);
  EXPECT_EQ(far->write({&byte, 1}).bytes, 1U);
  ASSERT_TRUE(poller->wait(Deadline::after(10s)));
  EXPECT_EQ(near->read({&byte, 1}).bytes, 1U);
  far.reset();
  ASSERT_TRUE(poller->wait(Deadline::after(10s)));
  EXPECT_NE(near->read({&byte, 1}).state, Transfer::State::open);
  poller->forget(*near);
}

TEST(PosixPoller, WakeFromAnotherThread) {
  PosixNetwork network;
  auto poller = network.poller();
  for (int i = 0; i < 100; ++i) {
    const std::jthread waker([&] { poller->wake(); });
    EXPECT_TRUE(poller->wait(Deadline::after(10s)));
  }
}

TEST(PosixPoller, ASignalDoesNotEndTheWait) {
  struct sigaction quiet {};
  struct sigaction before {};
  static std::atomic<int> caught;
  caught = 0;
  quiet.sa_handler = [](int) { ++caught; };
  ASSERT_EQ(::sigaction(SIGUSR1, &quiet, &before), 0);
  PosixNetwork network;
  auto poller = network.poller();
  const pthread_t waiting = ::pthread_self();
  const Deadline deadline = Deadline::after(30ms);
  {
    const std::jthread nuisance([&] {
      while (!deadline.passed()) {
        ::pthread_kill(waiting, SIGUSR1);
        std::this_thread::yield();
      }
    });
    EXPECT_FALSE(poller->wait(deadline));
    EXPECT_TRUE(deadline.passed());
  }
  EXPECT_GT(caught, 0);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(PosixPoller, RefusesStrangers) {
  class Stranger final : public Listener {
    std::unique_ptr<Connection> accept() override { return nullptr; }
    [[nodiscard]] std::string address() const override { return ""; }
  };
  Stranger stranger;
  PosixNetwork network;
  auto poller = network.poller();
  EXPECT_THROW(poller->watch(stranger), InvalidUsage);
}

}  // namespace
}  // namespace lockstep::sys
