// What only real processes do.
#include "sys/posix_proc.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
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
