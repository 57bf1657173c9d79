// What every implementation of sys::Processes does, real or simulated.
#include "sys/proc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <functional>

#include "sim/process.h"
#include "sys/posix_proc.h"

namespace lockstep::sys {
namespace {

using namespace std::chrono_literals;
using How = ExitStatus::How;
using testing::HasSubstr;

class Bench {
 public:
  virtual ~Bench() = default;
  virtual Processes& processes() = 0;
  virtual const Clock& clock() = 0;
};

class PosixBench final : public Bench {
 public:
  Processes& processes() override { return processes_; }
  const Clock& clock() override { return clock_; }

 private:
  PosixProcesses processes_;
  MonotonicClock clock_;
};

/// The programs the tests use, in virtual time.
class SimBench final : public Bench {
 public:
  SimBench() : world_(3), processes_(world_) {
    processes_.install("/bin/true", [](sim::Running& self) { self.exit(0); });
    processes_.install("/bin/sh", [](sim::Running& self) {
      const std::string& script = self.command().argv.at(2);
      self.exit(std::stoi(script.substr(script.rfind(' '))));
    });
    processes_.install("/bin/sleep", [](sim::Running& self) {
      self.after(std::chrono::seconds(std::stoi(self.command().argv.at(1))),
                 [&self] { self.exit(0); });
    });
    processes_.install("/bin/echo", [](sim::Running& self) {
      self.print(self.command().argv.at(1) + "\n");
      self.exit(0);
    });
    processes_.install("/bin/ls", [](sim::Running& self) {
      self.print_error("ls: cannot access '/no/such/file'\n");
      self.exit(2);
    });
  }
  Processes& processes() override { return processes_; }
  const Clock& clock() override { return world_; }

 private:
  sim::World world_;
  sim::Processes processes_;
};

struct Variant {
  std::string name;
  std::function<std::unique_ptr<Bench>()> make;
};

class ProcTest : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override { bench_ = GetParam().make(); }
  std::unique_ptr<Process> spawn(std::vector<std::string> argv) {
    return bench_->processes().spawn({.argv = std::move(argv)});
  }
  Deadline soon() { return Deadline::after(bench_->clock(), 20s); }
  Deadline now() { return Deadline::after(bench_->clock(), 0s); }

  std::unique_ptr<Bench> bench_;
};

TEST_P(ProcTest, SuccessIsExitZero) {
  auto process = spawn({"/bin/true"});
  EXPECT_GT(process->pid(), 0);
  const auto ended = process->wait(soon());
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(ended->success());
  EXPECT_EQ(process->poll(), ended) << "the status stays";
  EXPECT_EQ(process->wait(now()), ended);
}

TEST_P(ProcTest, TheExitValueIsReported) {
  auto process = spawn({"/bin/sh", "-c", "exit 3"});
  const auto ended = process->wait(soon());
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(*ended, (ExitStatus{How::exited, 3}));
  EXPECT_FALSE(ended->success());
  EXPECT_EQ(ended->to_string(), "exited with 3");
}

TEST_P(ProcTest, ARunningProcessHasNoStatus) {
  auto process = spawn({"/bin/sleep", "600"});
  EXPECT_EQ(process->poll(), std::nullopt);
  EXPECT_EQ(process->wait(now()), std::nullopt);
  EXPECT_EQ(process->wait(Deadline::after(bench_->clock(), 5ms)), std::nullopt);
}

TEST_P(ProcTest, SignalsEndAProcess) {
  const std::pair<Signal, int> cases[] = {{Signal::kill, SIGKILL},     {Signal::terminate, SIGTERM},
                                          {Signal::interrupt, SIGINT}, {Signal::hangup, SIGHUP},
                                          {Signal::user1, SIGUSR1},    {Signal::user2, SIGUSR2}};
  for (const auto& [signal, number] : cases) {
    auto process = spawn({"/bin/sleep", "600"});
    EXPECT_TRUE(process->signal(signal).ok());
    const auto ended = process->wait(soon());
    ASSERT_TRUE(ended.has_value()) << to_string(signal);
    EXPECT_EQ(*ended, (ExitStatus{How::signalled, number}));
    EXPECT_THAT(ended->to_string(), HasSubstr(std::string(to_string(signal))));
  }
}

TEST_P(ProcTest, AStoppedProcessCanOnlyBeKilledOrResumed) {
  auto process = spawn({"/bin/sleep", "600"});
  EXPECT_TRUE(process->signal(Signal::stop).ok());
  // The stop has arrived before the terminate is sent: signals do not overtake by much.
  EXPECT_EQ(process->wait(Deadline::after(bench_->clock(), 20ms)), std::nullopt);
  EXPECT_TRUE(process->signal(Signal::terminate).ok());
  EXPECT_EQ(process->wait(Deadline::after(bench_->clock(), 20ms)), std::nullopt);
  EXPECT_TRUE(process->signal(Signal::resume).ok());
  EXPECT_EQ(process->wait(soon()), (ExitStatus{How::signalled, SIGTERM}));

  process = spawn({"/bin/sleep", "600"});
  EXPECT_TRUE(process->signal(Signal::stop).ok());
  EXPECT_TRUE(process->signal(Signal::kill).ok());
  EXPECT_EQ(process->wait(soon()), (ExitStatus{How::signalled, SIGKILL}));
}

TEST_P(ProcTest, TheEndedCannotBeSignalled) {
  auto process = spawn({"/bin/true"});
  ASSERT_TRUE(process->wait(soon()).has_value());
  const Status status = process->signal(Signal::kill);
  EXPECT_EQ(status.kind(), ErrorKind::system_error);
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_THAT(status.message(), HasSubstr(std::to_string(process->pid())));
}

TEST_P(ProcTest, AMissingProgramIsNamed) {
  try {
    spawn({"/no/such/program", "two words"});
    FAIL();
  } catch (const SystemError& e) {
    EXPECT_THAT(e.what(), HasSubstr("cannot start /no/such/program 'two words': "));
    EXPECT_EQ(e.code(), Code::not_found);
  }
  EXPECT_THROW(spawn({}), InvalidUsage);
}

TEST_P(ProcTest, ProcessesHaveTheirOwnPids) {
  auto one = spawn({"/bin/sleep", "600"});
  auto two = spawn({"/bin/sleep", "600"});
  EXPECT_NE(one->pid(), two->pid());
  EXPECT_TRUE(one->signal(Signal::kill).ok());
  EXPECT_TRUE(one->wait(soon()).has_value());
  EXPECT_EQ(two->poll(), std::nullopt);
}

/// What is in a pipe whose writers are gone.
std::string all_of(const Descriptor& pipe) {
  std::string text;
  char part[256];
  for (;;) {
    pollfd ready{.fd = pipe.get(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 20'000) != 1) return text + "<nothing comes>";
    const ssize_t size = ::read(pipe.get(), part, sizeof part);
    if (size <= 0) return text;
    text.append(part, static_cast<std::size_t>(size));
  }
}

TEST_P(ProcTest, OutputAndErrorsComeThroughPipes) {
  auto echo =
      bench_->processes().spawn({.argv = {"/bin/echo", "hello"}, .output = Command::Output::pipe});
  const Descriptor output = echo->take_output();
  const Descriptor errors = echo->take_errors();
  ASSERT_TRUE(echo->wait(soon()).has_value());
  EXPECT_EQ(all_of(output), "hello\n");
  EXPECT_EQ(all_of(errors), "");
  EXPECT_FALSE(echo->take_output().valid()) << "given away already";

  auto fails = bench_->processes().spawn(
      {.argv = {"/bin/ls", "/no/such/file"}, .output = Command::Output::pipe});
  ASSERT_TRUE(fails->wait(soon()).has_value());
  EXPECT_EQ(all_of(fails->take_output()), "");
  EXPECT_THAT(all_of(fails->take_errors()), HasSubstr("/no/such/file"));
}

TEST_P(ProcTest, AnEmptyPipeDoesNotBlockTheReader) {
  auto process =
      bench_->processes().spawn({.argv = {"/bin/sleep", "600"}, .output = Command::Output::pipe});
  const Descriptor output = process->take_output();
  char byte = 0;
  EXPECT_EQ(::read(output.get(), &byte, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_P(ProcTest, WithoutPipesThereIsNothingToTake) {
  auto process = spawn({"/bin/true"});
  EXPECT_FALSE(process->take_output().valid());
  EXPECT_FALSE(process->take_errors().valid());
}

TEST_P(ProcTest, TheEndCanBePolledFor) {
  auto process = spawn({"/bin/sleep", "600"});
  pollfd end{.fd = process->end_descriptor(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&end, 1, 0), 0);
  EXPECT_TRUE(process->signal(Signal::kill).ok());
  ASSERT_TRUE(process->wait(soon()).has_value());
  EXPECT_EQ(::poll(&end, 1, 0), 1);
}

TEST_P(ProcTest, AGroupOfItsOwnIsSignalledTheSameWay) {
  auto process =
      bench_->processes().spawn({.argv = {"/bin/sleep", "600"}, .group = Command::Group::own});
  EXPECT_TRUE(process->signal(Signal::terminate).ok());
  EXPECT_EQ(process->wait(soon()), (ExitStatus{How::signalled, SIGTERM}));
  EXPECT_EQ(process->signal(Signal::terminate).code(), Code::not_found);
}

INSTANTIATE_TEST_SUITE_P(
    All, ProcTest,
    testing::Values(Variant{"posix", [] { return std::make_unique<PosixBench>(); }},
                    Variant{"sim", [] { return std::make_unique<SimBench>(); }}),
    [](const auto& variant) { return variant.param.name; });

}  // namespace
}  // namespace lockstep::sys
