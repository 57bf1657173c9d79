// What `lockstep launch` shows and writes of its ranks' output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/sys/temporary_directory.h"
#include "tests/tools/command.h"
#include "tests/tools/launch/launched.h"

namespace lockstep::tool {
namespace {

using How = sys::ExitStatus::How;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

constexpr auto exited = [](int value) { return sys::ExitStatus{How::exited, value}; };

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST(LaunchOutput, OutputAndErrorsStayApart) {
  const Finished finished = launch_command(ranks_of(1, "echo out; echo err >&2"));
  EXPECT_EQ(finished.out, "[0] out\n");
  EXPECT_EQ(finished.err, "[0] err\n");
}

TEST(LaunchOutput, NoPrefixPassesBytesExactly) {
  const Finished finished =
      launch_command(ranks_of(1, "printf 'a\\000b\\r\\377\\n\\n no newline'", {"--no-prefix"}));
  EXPECT_EQ(finished.out, std::string("a\0b\r\377\n\n no newline", 18));
}

TEST(LaunchOutput, LinesOfManyRanksStayWhole) {
  const Finished finished =
      launch_command(ranks_of(4,
                              "i=0; while [ $i -lt 300 ]; do echo line $i of $LOCKSTEP_RANK end; "
                              "i=$((i+1)); done"));
  const auto lines = lines_of(finished.out);
  EXPECT_EQ(lines.size(), 1200U);
  for (const std::string& line : lines) {
    ASSERT_THAT(line, ContainsRegex("^\\[[0-3]\\] line [0-9]+ of [0-3] end$"));
    ASSERT_EQ(line[1], line[line.size() - 5]) << line;
  }
}

TEST(LaunchOutput, ALineOfAMebibyte) {
  const std::string script = "head -c 1048576 /dev/zero | tr '\\0' x; echo";
  const Finished finished = launch_command(ranks_of(1, script));
  EXPECT_EQ(finished.out, "[0] " + std::string(1 << 20, 'x') + "\n");
  const Finished two = launch_command(ranks_of(2, script, {"--no-prefix"}));
  EXPECT_EQ(std::count(two.out.begin(), two.out.end(), 'x'), 2 << 20);
}

TEST(LaunchOutput, ABeginningOfALineIsShownSoon) {
  Launched launch(ranks_of(1, "printf 'your name? '; exec sleep 600"));
  launch.wait_for("[0] your name? ");
  launch.signal(sys::Signal::terminate);
  launch.finish();
}

TEST(LaunchOutput, NoColorsWithoutATerminal) {
  EXPECT_THAT(launch_command(ranks_of(1, "echo x")).out, Not(HasSubstr("\033")));
}

/// Runs the launcher in a pseudo terminal; script(1) is part of every Debian system.
Result in_a_terminal(const std::string& before, const std::string& options) {
  const TemporaryFile out("terminal");
  const std::string command = "TERM=xterm " + before +
                              " script -qec \"'" LOCKSTEP_COMMAND "' launch -n 2 " + options +
                              " -- echo hi\" /dev/null > '" + out.path() + "' </dev/null";
  const int code = std::system(command.c_str());  // NOLINT(cert-env33-c): the point of the test
  return {.code = code, .out = out.text(), .err = ""};
}

TEST(LaunchOutput, ColorsOnATerminalUnlessRefused) {
  EXPECT_THAT(in_a_terminal("env -u NO_COLOR", "").out,
              AllOf(HasSubstr("\033[36m[0]\033[0m hi"), HasSubstr("\033[33m[1]\033[0m hi")));
  EXPECT_THAT(in_a_terminal("NO_COLOR=1", "").out, HasSubstr("[0] hi"));
  EXPECT_THAT(in_a_terminal("NO_COLOR=1", "").out, Not(HasSubstr("\033[36m")));
  EXPECT_THAT(in_a_terminal("env -u NO_COLOR", "--no-color").out, Not(HasSubstr("\033[36m")));
}

TEST(LaunchOutput, ClosedStandardFilesDoNotMatter) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/done";
  const Result result = lockstep_command(
      "launch -n 2 -- /bin/sh -c 'echo x; echo y >&2; echo d >> " + file + "' <&- >&- 2>&-");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(contents(file), "d\nd\n");
}

TEST(LaunchOutput, AReaderThatLeavesDoesNotEndTheRanks) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/done";
  // The reader takes one line and goes; the rank writes on.
  const std::string command = "'" LOCKSTEP_COMMAND
                              "' launch -n 1 -- /bin/sh -c 'i=0; while [ $i -lt 4000 ]; do echo $i "
                              "some words to fill the pipe with; i=$((i+1)); done; echo done > " +
                              file + "' 2> " + directory.path() + "/err | head -1";
  EXPECT_EQ(std::system(command.c_str()), 0);  // NOLINT(cert-env33-c): the point of the test
  // The pipeline ends with `head` and the launcher.
  EXPECT_EQ(contents(file), "done\n");
  EXPECT_THAT(contents(directory.path() + "/err"),
              AllOf(HasSubstr("of rank 0 were not shown"), HasSubstr("Broken pipe")));
}

TEST(LaunchOutput, AReaderThatDoesNotReadDoesNotBlockTheRanks) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/done";
  Launched launch(ranks_of(
      2, "yes some words that nobody will ever read | head -c 20000000; echo done >> " + file));
  EXPECT_EQ(launch.finish_unread(), exited(0));
  EXPECT_EQ(contents(file), "done\ndone\n");
  EXPECT_THAT(launch.finish().err,
              ContainsRegex("[0-9]+ lines \\([0-9.]+ MiB\\) of rank 1 were not "
                            "shown; standard output took them too slowly"));
}

TEST(LaunchOutput, ASlowReaderLosesNothing) {
  Launched launch(ranks_of(1, "head -c 6000000 /dev/zero | tr '\\0' '\\n'", {"--no-prefix"}));
  ::usleep(100'000);
  const Finished finished = launch.finish();
  EXPECT_EQ(finished.out.size(), 6'000'000U);
  EXPECT_EQ(finished.err, "");
}

TEST(LaunchOutput, LogsHoldWhatEachRankWrote) {
  const TemporaryDirectory directory;
  const std::string logs = directory.path() + "/new/logs";
  const Finished finished = launch_command(
      ranks_of(2, "echo out $LOCKSTEP_RANK; echo err >&2; echo end", {"--log-dir", logs}));
  EXPECT_EQ(finished.status, exited(0)) << finished.err;
  EXPECT_THAT(lines_of(contents(logs + "/rank-0.log")),
              UnorderedElementsAre("out 0", "err", "end"));
  EXPECT_THAT(lines_of(contents(logs + "/rank-1.log")),
              UnorderedElementsAre("out 1", "err", "end"));
  EXPECT_THAT(finished.out, HasSubstr("[1] out 1\n"));
}

TEST(LaunchOutput, AFullDiskIsOneWarning) {
  const TemporaryDirectory directory;
  ASSERT_EQ(::symlink("/dev/full", (directory.path() + "/rank-1.log").c_str()), 0);
  const Finished finished =
      launch_command(ranks_of(2, "echo a; sleep 0.1; echo b", {"--log-dir", directory.path()}));
  EXPECT_EQ(finished.status, exited(0));
  const auto lines = lines_of(finished.err);
  ASSERT_EQ(lines.size(), 1U) << finished.err;
  EXPECT_THAT(lines[0], AllOf(HasSubstr("rank-1.log ends here"), HasSubstr("No space left")));
  EXPECT_THAT(finished.out, HasSubstr("[1] b\n"));
  EXPECT_EQ(contents(directory.path() + "/rank-0.log"), "a\nb\n");
}

TEST(LaunchOutput, TheLimitOfFileSizesIsOneWarningToo) {
  const TemporaryDirectory directory;
  const std::string limited = "ulimit -f 8; '" LOCKSTEP_COMMAND "' launch -n 1 --log-dir " +
                              directory.path() +
                              " -- /bin/sh -c 'head -c 100000 /dev/zero | tr \"\\0\" x' 2>&1 "
                              "| tr -d x | grep -c 'ends here: File too large' | grep -q '^1$'";
  EXPECT_EQ(std::system(limited.c_str()), 0);  // NOLINT(cert-env33-c): the point of the test
}

TEST(LaunchOutput, ALogThatCannotBeWrittenIsAnErrorAtTheStart) {
  const Finished finished =
      launch_command(ranks_of(1, "echo ran", {"--log-dir", "/proc/no/such/place"}));
  EXPECT_EQ(finished.status, exited(1));
  EXPECT_THAT(finished.err, HasSubstr("/proc/no/such/place"));
  EXPECT_EQ(finished.out, "");
}

}  // namespace
}  // namespace lockstep::tool
