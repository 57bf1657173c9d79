// lockstep launch with real processes: environment, exit codes, causes, nothing left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "sys/openblas_kernels.h"
#include "sys/posix_proc.h"
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

std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

TEST(Launch, EveryRankKnowsWhoItIs) {
  const Finished finished = launch_command(ranks_of(
      3,
      "echo $LOCKSTEP_RANK of $LOCKSTEP_SIZE, $LOCKSTEP_LOCAL_RANK of $LOCKSTEP_LOCAL_SIZE here, "
      "restart $LOCKSTEP_GENERATION_HINT"));
  EXPECT_EQ(finished.status, exited(0)) << finished.err;
  EXPECT_EQ(finished.err, "");
  EXPECT_THAT(lines_of(finished.out), UnorderedElementsAre("[0] 0 of 3, 0 of 3 here, restart 0",
                                                           "[1] 1 of 3, 1 of 3 here, restart 0",
                                                           "[2] 2 of 3, 2 of 3 here, restart 0"));
}

TEST(Launch, RanksHaveTheKernelsOfTheirProcessor) {
  const std::string better =
      sys::better_openblas_kernels("OpenBLAS 0.3.21 Prescott", sys::Processor::here());
  const std::string script = "echo kernels \"$OPENBLAS_CORETYPE\"$OPENBLAS_NUM_THREADS.";
  const std::string old_blas = "LD_LIBRARY_PATH=" LOCKSTEP_OLD_BLAS;
  const char* own = std::getenv("OPENBLAS_CORETYPE");
  const std::string before = own != nullptr ? own : "";
  unsetenv("OPENBLAS_CORETYPE");
  const Finished chosen = launch_command(ranks_of(2, script), {old_blas});
  const Finished kept = launch_command(ranks_of(1, script), {old_blas, "OPENBLAS_CORETYPE=Core2"});
  if (own != nullptr) setenv("OPENBLAS_CORETYPE", before.c_str(), 1);
  EXPECT_THAT(lines_of(chosen.out),
              UnorderedElementsAre("[0] kernels " + better + ".", "[1] kernels " + better + "."))
      << chosen.err;
  EXPECT_EQ(kept.out, "[0] kernels Core2.\n") << kept.err;
}

TEST(Launch, TheRunDirectoryIsPrivateAndRemoved) {
  const TemporaryDirectory parent;
  const Finished finished = launch_command(
      ranks_of(1,
               "a=${LOCKSTEP_ADDRESSES#unix:}; d=${a%/0}; stat -c '%a %F' \"$d\" \"$d/key\"; "
               "echo \"$LOCKSTEP_KEY_FILE\"; wc -c < \"$d/key\"; touch \"$d/0\"",
               {"--no-prefix"}),
      {"XDG_RUNTIME_DIR=" + parent.path()});
  EXPECT_THAT(finished.out, HasSubstr("700 directory\n600 regular file\n" + parent.path()));
  EXPECT_THAT(finished.out, HasSubstr("\n65\n"));
  EXPECT_THAT(files_in(parent.path()), testing::IsEmpty());
}

TEST(Launch, TfConfigHasAPortForEachWorker) {
  const Finished finished = launch_command(ranks_of(2, "echo \"$TF_CONFIG\""));
  EXPECT_THAT(finished.out,
              ContainsRegex("\\[1\\] \\{\"cluster\":\\{\"worker\":\\[\"localhost:[0-9]+\","
                            "\"localhost:[0-9]+\"\\]\\},\"task\":\\{\"type\":\"worker\","
                            "\"index\":1\\}\\}"));
}

TEST(Launch, SeveralHosts) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/hosts";
  std::ofstream(file) << "a slots=1\nb slots=2 # this one\n";
  const std::string show =
      "echo $LOCKSTEP_RANK $LOCKSTEP_SIZE $LOCKSTEP_LOCAL_RANK $LOCKSTEP_ADDRESSES $LOCKSTEP_BIND "
      "$LOCKSTEP_INSECURE $LOCKSTEP_PLAINTEXT_DATA";
  const Finished finished =
      launch_command({"--hostfile", file, "--rank-host", "1", "--port-base", "4000", "--bind",
                      "10.0.0.2", "--insecure", "--plaintext-data", "--", "/bin/sh", "-c", show});
  EXPECT_EQ(finished.status, exited(0)) << finished.err;
  EXPECT_THAT(lines_of(finished.out),
              UnorderedElementsAre("[1] 1 3 0 a:4000,b:4000,b:4001 10.0.0.2 1 1",
                                   "[2] 2 3 1 a:4000,b:4000,b:4001 10.0.0.2 1 1"));
  EXPECT_THAT(finished.err, HasSubstr("--insecure"));
}

TEST(Launch, SeveralHostsNeedAKey) {
  const std::vector<std::string> hosts = {"--hosts", "a,b", "--rank-host", "0"};
  const Finished refused = launch_command(ranks_of(1, "exit 0", hosts));
  EXPECT_EQ(refused.status, exited(2));
  EXPECT_THAT(refused.err, AllOf(HasSubstr("need a key"), HasSubstr("/dev/urandom")));
  EXPECT_EQ(launch_command(ranks_of(1, "test \"$LOCKSTEP_KEY\" = abc", hosts), {"LOCKSTEP_KEY=abc"})
                .status,
            exited(0));
}

TEST(Launch, ArgumentsAndEnvironmentArriveExactly) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/got";
  const std::string huge(100'000, 'h');
  const std::vector<std::string> odd = {"two words", "new\nline",  "",     "--",     "-n",  "[a,b]",
                                        "{x}",       "$HOME \\ '", "\xff", "%d %%s", "a=b", huge};
  std::vector<std::string> words = {
      "-n", "1", "--", "/bin/sh", "-c", "printf '%s\\0' \"$@\" \"$ODD\" \"$HUGE\" > \"$0\"", file};
  words.insert(words.end(), odd.begin(), odd.end());
  std::vector<std::string> more = {"ODD=a\n b=c", "HUGE=" + huge};
  for (int i = 0; i < 5; ++i) more.push_back("HUGE" + std::to_string(i) + "=" + huge);
  const Finished finished = launch_command(words, more);
  EXPECT_EQ(finished.status, exited(0)) << finished.err;
  std::string expected;
  for (const std::string& word : odd) expected += word + '\0';
  expected += std::string("a\n b=c") + '\0' + huge + '\0';
  std::ostringstream got;
  got << std::ifstream(file, std::ios::binary).rdbuf();
  EXPECT_EQ(got.str(), expected);
}

TEST(Launch, StandardInputIsEmptyAndSignalsAreDefault) {
  const Finished finished = launch_command(
      ranks_of(1, "cat; grep -E 'Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd"));
  EXPECT_THAT(finished.out, HasSubstr("SigBlk:\t0000000000000000"));
  // posix_spawn leaves two signals ignored that the C library keeps for itself, 32 and 33.
  EXPECT_THAT(finished.out, ContainsRegex("SigIgn:\t0000000[01][08]0000000\n"));
  EXPECT_THAT(finished.out, Not(HasSubstr("[0] 4\n"))) << "a descriptor leaks";
}

TEST(Launch, TheExitCodeIsThatOfTheRankThatFailedFirst) {
  const TemporaryDirectory directory;
  const std::string failing = directory.path() + "/failing";
  const Finished finished = launch_command(
      ranks_of(3, "if [ $LOCKSTEP_RANK = 1 ]; then echo one >&2; echo why >&2; : > " + failing +
                      "; exit 9; fi; while [ ! -e " + failing +
                      " ]; do sleep 0.02; done; sleep 0.4; exit 4"));
  EXPECT_EQ(finished.status, exited(9));
  EXPECT_THAT(
      finished.err,
      AllOf(ContainsRegex(
                "first cause: rank 1 \\(pid [0-9]+\\) exited with 9 after [0-9]+\\.[0-9] s"),
            HasSubstr("; what it wrote stands above\n"), HasSubstr("rank 0 exited with 4"),
            HasSubstr("rank 2 exited with 4")));
  EXPECT_THAT(finished.err, AllOf(HasSubstr("[1] one\n[1] why\n"), Not(HasSubstr("| why"))))
      << "it is told once";
}

TEST(Launch, WhatTheFirstCauseWroteIsRepeatedIfOthersHaveWrittenSince) {
  const TemporaryDirectory directory;
  const std::string failing = directory.path() + "/failing";
  const Finished finished = launch_command(
      ranks_of(2, "if [ $LOCKSTEP_RANK = 1 ]; then echo one >&2; echo why >&2; : > " + failing +
                      "; exit 9; fi; while [ ! -e " + failing +
                      " ]; do sleep 0.02; done; sleep 0.4; seq 20 >&2; exit 4"));
  EXPECT_EQ(finished.status, exited(9));
  EXPECT_THAT(finished.err, HasSubstr("lockstep:   | one\nlockstep:   | why\n"));
}

// A rank that leaves the others may end after those that found it gone.
TEST(Launch, ARankThatBlamesAnotherIsNotTheFirstCause) {
  const TemporaryDirectory directory;
  const std::string failing = directory.path() + "/failing";
  const Finished finished = launch_command(
      ranks_of(3, "if [ $LOCKSTEP_RANK = 1 ]; then while [ ! -e " + failing +
                      " ]; do sleep 0.02; done; sleep 0.4; exit 9; fi; "
                      "printf '1\\nrank 1 has left\\n' > $LOCKSTEP_FAILURE_FILE; : > " +
                      failing + "; exit 4"));
  EXPECT_EQ(finished.status, exited(9));
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("first cause: rank 1"), HasSubstr("rank 0 exited with 4"),
                    HasSubstr("rank 2 exited with 4"), Not(HasSubstr("to blame"))));
}

TEST(Launch, ASignalIsNamed) {
  const Finished finished = launch_command(
      ranks_of(2, "ulimit -c 0; if [ $LOCKSTEP_RANK = 0 ]; then kill -SEGV $$; fi; exec sleep 600",
               {"--settle", "0.1"}));
  EXPECT_EQ(finished.status, exited(128 + SIGSEGV));
  EXPECT_THAT(finished.err, AllOf(HasSubstr("killed by signal 11 (SEGV) after"),
                                  HasSubstr("ended by the launcher: rank 1 (killed by signal 15")));
}

TEST(Launch, AKillIsLookedInto) {
  const Finished finished = launch_command(ranks_of(1, "kill -KILL $$"));
  EXPECT_EQ(finished.status, exited(128 + SIGKILL));
  EXPECT_THAT(finished.err, AllOf(HasSubstr("killed by signal 9 (KILL)"), ContainsRegex("memory")));
}

TEST(Launch, TheOthersAreKilledIfTheyDoNotEnd) {
  const Finished finished =
      launch_command(ranks_of(2,
                              "trap '' TERM; if [ $LOCKSTEP_RANK = 0 ]; then exit 3; fi; "
                              "while :; do sleep 0.05; done",
                              {"--settle", "0.1", "--grace", "0.2"}));
  EXPECT_EQ(finished.status, exited(3));
  EXPECT_THAT(finished.err, HasSubstr("rank 1 (killed by signal 9 (KILL))"));
}

TEST(Launch, AProgramThatIsNotThere) {
  const Finished finished = launch_command({"-n", "3", "--", "/no/such/program", "x"});
  EXPECT_EQ(finished.status, exited(127));
  EXPECT_EQ(lines_of(finished.err).size(), 1U) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("cannot start /no/such/program: No such file"));
  const Finished in_path = launch_command({"-n", "3", "--", "no-such-program-anywhere"});
  EXPECT_EQ(in_path.status, exited(127));
  EXPECT_THAT(in_path.err, HasSubstr("not in PATH"));
}

TEST(Launch, AProgramThatCannotBeExecuted) {
  const TemporaryDirectory directory;
  const std::string script = directory.path() + "/script";
  std::ofstream(script) << "#!/no/such/interpreter\n";
  const auto run = [&] { return launch_command({"-n", "3", "--", script}); };
  Finished finished = run();
  EXPECT_EQ(finished.status, exited(126));
  EXPECT_THAT(finished.err, HasSubstr("not executable"));
  ::chmod(script.c_str(), 0755);
  finished = run();
  EXPECT_EQ(finished.status, exited(126));
  EXPECT_THAT(finished.err, HasSubstr("interpreter"));
  EXPECT_EQ(lines_of(finished.err).size(), 1U) << finished.err;
  finished = launch_command({"-n", "1", "--", directory.path()});
  EXPECT_EQ(finished.status, exited(126));
  EXPECT_THAT(finished.err, HasSubstr("is a directory"));
}

#ifndef LOCKSTEP_SANITIZED  // UndefinedBehaviorSanitizer needs a descriptor to look at an exception
TEST(Launch, ALimitIsNamedWithTheRankThatHitIt) {
  const TemporaryDirectory parent;
  const std::string limited = "ulimit -n 64; XDG_RUNTIME_DIR=" + parent.path() +
                              " '" LOCKSTEP_COMMAND
                              "' launch -n 40 -- sleep 600 2>&1 | "
                              "grep -q 'cannot start rank [0-9]* of 40: .*ulimit -n'";
  EXPECT_EQ(std::system(limited.c_str()), 0);  // NOLINT(cert-env33-c): the point of the test
  EXPECT_THAT(files_in(parent.path()), testing::IsEmpty());
}
#endif

TEST(Launch, WhatARankLeavesBehindIsEnded) {
  const Finished finished =
      launch_command(ranks_of(1, "sleep 600 & echo $!; exit 0", {"--no-prefix"}));
  EXPECT_EQ(finished.status, exited(0));
  EXPECT_TRUE(gone(std::stoi(finished.out)));
}

TEST(Exec, DiesWithItsLauncher) {
  // Without a keeper: a shell in the launcher's place.
  auto shell = sys::PosixProcesses().spawn(
      {.argv = {"/bin/sh", "-c",
                "'" LOCKSTEP_COMMAND "' exec --launcher $$ -- sh -c 'echo on; exec "
                "sleep 600' & echo $!; wait"},
       .output = sys::Command::Output::pipe});
  const sys::Descriptor output = shell->take_output();
  std::string text;
  for (int i = 0; i < 2000 && text.find("on\n") == std::string::npos; ++i) {
    char part[64];
    const ssize_t size = ::read(output.get(), part, sizeof part);
    if (size > 0) text.append(part, static_cast<std::size_t>(size));
    if (size < 0) ::usleep(10'000);
  }
  ASSERT_THAT(text, HasSubstr("on\n"));
  text.erase(text.find("on\n"), 3);
  EXPECT_TRUE(shell->signal(sys::Signal::kill).ok());
  EXPECT_TRUE(gone(std::stoi(text)));
}

TEST(Exec, DoesNotStartAfterItsLauncherHasDied) {
  const Result result = lockstep_command("exec --launcher 1 -- echo ran");
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_EQ(result.out, "");
}

TEST(Launch, AKilledLauncherTakesEverythingAlong) {
  const TemporaryDirectory parent;
  Launched launch(ranks_of(2, "sleep 600 & echo pids $$ $!; wait", {"--no-prefix"}),
                  {"XDG_RUNTIME_DIR=" + parent.path()});
  while (lines_of(launch.out()).size() < 2 && !HasFailure()) {
    launch.wait_for(launch.out().empty() ? "pids" : launch.out() + "pids");
    launch.wait_for("\n");
  }
  EXPECT_EQ(files_in(parent.path()).size(), 1U);
  launch.signal(sys::Signal::kill);
  EXPECT_EQ(launch.finish_unread(), (sys::ExitStatus{How::signalled, SIGKILL}));
  for (const std::string& line : lines_of(launch.out())) {
    std::istringstream words(line);
    std::string word;
    int shell = 0;
    int child = 0;
    ASSERT_TRUE(words >> word >> shell >> child) << line;
    EXPECT_TRUE(gone(shell));
    EXPECT_TRUE(gone(child));
  }
  for (int i = 0; i < 500 && !files_in(parent.path()).empty(); ++i) ::usleep(10'000);
  EXPECT_THAT(files_in(parent.path()), testing::IsEmpty());
}

}  // namespace
}  // namespace lockstep::tool
