// What only real processes do.
#include "sys/posix_proc.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/descriptor.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep::sys {
namespace {

using namespace std::chrono_literals;
using How = ExitStatus::How;

ExitStatus run(const Command& command) {
  PosixProcesses processes;
  return processes.spawn(command)->wait(Deadline::after(20s)).value();
}

TEST(PosixProcesses, TheEnvironmentIsTheOneGiven) {
  ::setenv("LOCKSTEP_TEST_LEAK", "1", 1);
  const std::string script = "test \"$A\" = 'b c' && test -z \"$LOCKSTEP_TEST_LEAK\"";
  EXPECT_TRUE(run({.argv = {"/bin/sh", "-c", script}, .environment = {{"A=b c"}}}).success());
  EXPECT_TRUE(run({.argv = {"/bin/sh", "-c", "test -n \"$LOCKSTEP_TEST_LEAK\""}}).success());
  ::unsetenv("LOCKSTEP_TEST_LEAK");
}

TEST(PosixProcesses, ProgramsAreFoundInThePath) { EXPECT_TRUE(run({.argv = {"true"}}).success()); }

TEST(PosixProcesses, StartsInTheDirectoryGiven) {
  const TemporaryDirectory directory;
  EXPECT_TRUE(run({.argv = {"/bin/sh", "-c", "test \"$(pwd -P)\" = \"$0\"", directory.path()},
                   .directory = directory.path()})
                  .success());
  PosixProcesses processes;
  EXPECT_THROW(processes.spawn({.argv = {"/bin/true"}, .directory = "/no/such/place"}),
               SystemError);
}

TEST(PosixProcesses, OurFilesStayHere) {
  const Descriptor leaky(::open("/dev/null", O_RDONLY));  // without O_CLOEXEC
  ASSERT_TRUE(leaky.valid());
  const std::string test = "test ! -e /proc/self/fd/" + std::to_string(leaky.get());
  EXPECT_TRUE(run({.argv = {"/bin/sh", "-c", test}}).success());
}

TEST(PosixProcesses, BlockedAndIgnoredSignalsAreNotInherited) {
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  PosixProcesses processes;
  auto process = processes.spawn({.argv = {"/bin/sleep", "600"}});
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_TRUE(process->signal(Signal::terminate).ok());
  EXPECT_EQ(process->wait(Deadline::after(20s)), (ExitStatus{How::signalled, SIGTERM}));
}

TEST(PosixProcesses, LettingGoKillsAndReaps) {
  PosixProcesses processes;
  auto process = processes.spawn({.argv = {"/bin/sleep", "600"}});
  const int pid = process->pid();
  EXPECT_EQ(::kill(pid, 0), 0);
  process.reset();
  EXPECT_EQ(::kill(pid, 0), -1) << "a zombie is left";
  EXPECT_EQ(errno, ESRCH);
}

TEST(PosixProcesses, EmptyInputEndsAtOnce) {
  EXPECT_TRUE(
      run({.argv = {"/bin/sh", "-c", "! read line"}, .input = Command::Input::empty}).success());
}

/// Waits until nobody holds the writing end any more.
bool closes(const Descriptor& pipe) {
  for (;;) {
    pollfd ready{.fd = pipe.get(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 20'000) != 1) return false;
    char part[256];
    if (::read(pipe.get(), part, sizeof part) == 0) return true;
  }
}

TEST(PosixProcesses, SignalsReachTheWholeGroup) {
  PosixProcesses processes;
  auto process = processes.spawn({.argv = {"/bin/sh", "-c", "sleep 600 & echo on; wait"},
                                  .output = Command::Output::pipe,
                                  .group = Command::Group::own});
  const Descriptor output = process->take_output();
  pollfd ready{.fd = output.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&ready, 1, 20'000), 1);
  EXPECT_EQ(::getpgid(process->pid()), process->pid());
  EXPECT_TRUE(process->signal(Signal::terminate).ok());
  EXPECT_TRUE(closes(output)) << "the sleep lives on";
  EXPECT_TRUE(process->wait(Deadline::after(20s)).has_value());
}

TEST(PosixProcesses, WhatIsLeftOfAGroupIsKilledWithItsLeader) {
  PosixProcesses processes;
  auto process = processes.spawn({.argv = {"/bin/sh", "-c", "sleep 600 & exit 5"},
                                  .output = Command::Output::pipe,
                                  .group = Command::Group::own});
  const Descriptor output = process->take_output();
  EXPECT_EQ(process->wait(Deadline::after(20s)), (ExitStatus{How::exited, 5}));
  EXPECT_TRUE(closes(output)) << "the sleep lives on";
}

TEST(PosixProcesses, LettingGoKillsTheGroup) {
  PosixProcesses processes;
  auto process = processes.spawn({.argv = {"/bin/sh", "-c", "sleep 600 & wait"},
                                  .output = Command::Output::pipe,
                                  .group = Command::Group::own});
  const Descriptor output = process->take_output();
  process.reset();
  EXPECT_TRUE(closes(output));
}

TEST(ExitStatus, SaysWhetherACoreWasDumped) {
  EXPECT_EQ((ExitStatus{How::signalled, SIGSEGV, true}).to_string(),
            "killed by signal 11 (SEGV), core dumped");
  EXPECT_EQ((ExitStatus{How::signalled, SIGSEGV}).to_string(), "killed by signal 11 (SEGV)");
}

TEST(PosixProcesses, WithoutACoreNoneIsReported) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_CORE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_CORE, &none), 0);
  EXPECT_EQ(run({.argv = {"/bin/sh", "-c", "kill -ABRT $$"}}),
            (ExitStatus{How::signalled, SIGABRT, false}));
  ::setrlimit(RLIMIT_CORE, &before);
}

TEST(PosixProcesses, AStatusTakenByOthersIsUnknown) {
  PosixProcesses processes;
  auto process = processes.spawn({.argv = {"/bin/true"}});
  ASSERT_EQ(::waitpid(process->pid(), nullptr, 0), process->pid());
  const auto ended = process->wait(Deadline::after(20s));
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->how, How::unknown);
  EXPECT_FALSE(ended->success());
}

}  // namespace
}  // namespace lockstep::sys
