// What needs namespaces or another user to be seen: names that lead to the machine itself, a small
// /dev/shm, strangers at Unix sockets. Needs root.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "sys/descriptor_passing.h"
#include "sys/posix_net.h"
#include "tests/processes/cluster.h"
#include "tests/processes/verdict.h"

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

/// Before a program: it has mounts of its own, changed by this line of a shell.
std::vector<std::string> with_mounts(const std::string& line) {
  return {"unshare", "--mount", "sh", "-c", line + R"( && exec "$@")", "sh"};
}

/// C11: Debian writes such a line for the own name of a machine.
TEST(Names, OfThisMachineThatLeadToLoopbackAreRefused) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() + "/hosts") << "127.0.0.1 localhost\n127.0.1.1 node0\n";
  const auto wrapper =
      with_mounts(fmt::format("mount --bind {}/hosts /etc/hosts", directory.path()));
  ProcessCluster cluster({.ranks = 2,
                          .scenario = "work 0.1 10",
                          .wire = Wire::tls,
                          .environment = {"TEST_JOIN_MS=3000"},
                          .wrappers = {wrapper, wrapper},
                          .addresses = {fmt::format("node0:{}", free_ports(1)[0]), "node1:4000"},
                          .absent = {1}});
  const auto outcome = cluster.finish(20s)[0];
  const auto verdict = verdict_in(outcome.text);
  ASSERT_TRUE(verdict.has_value()) << outcome.text;
  EXPECT_EQ(verdict->kind, "ConfigError");
  EXPECT_THAT(verdict->message, AllOf(HasSubstr("leads to a loopback address"),
                                      HasSubstr("/etc/hosts"), HasSubstr("node1:4000")));
}

/// Where all have the same name they are on one machine, and it works.
TEST(Names, OfLoopbackServeRanksOfOneMachine) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() + "/hosts") << "127.0.0.1 localhost\n127.0.1.1 node0\n";
  const auto wrapper =
      with_mounts(fmt::format("mount --bind {}/hosts /etc/hosts", directory.path()));
  const std::vector<int> ports = free_ports(2);
  ProcessCluster cluster(
      {.ranks = 2,
       .scenario = "work 0.1 10",
       .wire = Wire::tls,
       .wrappers = {wrapper, wrapper},
       .addresses = {fmt::format("node0:{}", ports[0]), fmt::format("node0:{}", ports[1])}});
  for (const Outcome& outcome : cluster.finish(20s)) EXPECT_TRUE(outcome.ok()) << outcome.text;
}

/// D1: containers give /dev/shm 64 MB, or nothing at all.
TEST(SharedMemory, DoesNotLieInDevShm) {
  const auto wrapper = with_mounts("mount -t tmpfs -o size=64k none /dev/shm");
  ProcessCluster cluster(
      {.ranks = 2, .scenario = "work 0.2 4000000 session", .wrappers = {wrapper, wrapper}});
  for (const Outcome& outcome : cluster.finish(30s)) {
    EXPECT_TRUE(outcome.ok()) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("by shared memory"));
  }
}

/// D4: the limit of processes counts threads, too, but not root's: each rank is a user of its own
/// who may read root's files.
TEST(Threads, D4NoneIsLeft) {
  const auto wrapper = [](int user) -> std::vector<std::string> {
    return {"prlimit",
            "--nproc=1",
            "setpriv",
            fmt::format("--reuid={}", user),
            "--inh-caps=+dac_override",
            "--ambient-caps=+dac_override"};
  };
  ProcessCluster cluster({.ranks = 2,
                          .scenario = "work 0.1 10",
                          .wire = Wire::tls,
                          .hosts = {"host0", "host1"},
                          .environment = {"TEST_JOIN_MS=3000"},
                          .wrappers = {wrapper(54321), wrapper(54322)}});
  for (const Outcome& outcome : cluster.finish(20s)) {
    const auto verdict = verdict_in(outcome.text);
    ASSERT_TRUE(verdict.has_value()) << outcome.text;
    EXPECT_EQ(verdict->kind, "SystemError") << outcome.text;
    EXPECT_EQ(verdict->code, "RESOURCE_EXHAUSTED");
    EXPECT_THAT(verdict->message,
                AllOf(HasSubstr("cannot start the thread"), HasSubstr("ulimit -u")));
  }
}

/// The exit code of a child that does this.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// F12: a container of the same machine has pids that this one cannot see; its user counts all the
/// same.
TEST(UnixSockets, ACallerOfAnotherPidNamespaceHasAUser) {
  const TemporaryDirectory directory;
  sys::PosixNetwork network;
  const auto listener = network.listen("unix:" + directory.path() + "/socket");
  const auto caller = network.connect(listener->address());
  const auto answer = [&] {
    const auto accepted = listener->accept();
    if (!accepted) return 1;
    const auto process = sys::peer_process(*accepted);
    if (!process) return 2;
    if (process->pid != 0) return 3;
    return process->uid == ::getuid() ? 0 : 4;
  };
  EXPECT_EQ(in_child([&] { return ::unshare(CLONE_NEWPID) == 0 ? in_child(answer) : 9; }), 0);
}

/// Whoever is first has an abstract name.
TEST(UnixSockets, AnotherUserWhoListensUnderAnAbstractNameIsNotSpokenTo) {
  const std::string address = fmt::format("unix:@lockstep-test-{}", ::getpid());
  int ready[2];
  int done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (::setuid(kNobody) != 0) ::_exit(1);
    ::close(done[1]);
    const auto listener = sys::PosixNetwork().listen(address);
    char byte = 0;
    if (::write(ready[1], &byte, 1) != 1) ::_exit(2);
    (void)!::read(done[0], &byte, 1);  // until the test is over
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const auto connection = sys::PosixNetwork().connect(address);
  (void)connection->write({});
  EXPECT_FALSE(connection->is_open());
  EXPECT_EQ(connection->error().code(), Code::permission_denied);
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) ::close(fd);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace lockstep::processes
