// A lint: every wait in src/ goes through something that takes a Deadline, and every thread is
// joined. Fails with file:line for a condition variable, a sleep, a wait without a deadline,
// detach() or fork(). The gate itself and the POSIX side of sys are where the real things live.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Comments become spaces; line numbers stay.
std::string without_comments(std::string text) {
  for (std::size_t at = 0; (at = text.find("//", at)) != std::string::npos;) {
    for (; at < text.size() && text[at] != '\n'; ++at) text[at] = ' ';
  }
  return text;
}

// The arguments of the call whose parenthesis opens at `open`.
std::string arguments_at(const std::string& text, std::size_t open) {
  int depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    if (text[at] == '(') ++depth;
    if (text[at] == ')' && --depth == 0) return text.substr(open + 1, at - open - 1);
  }
  return text.substr(open);
}

std::vector<std::string> naked_waits(const std::string& source) {
  static const std::regex forbidden(
      R"(condition_variable|\bsleep_for\b|\bsleep_until\b|\busleep\b|\bnanosleep\b|\bdetach\(|\bv?fork\(|\batomic_wait\b|SYS_futex)");
  // A Work is excepted: its operation has a deadline, and wait() throws when that has passed.
  static const std::regex waits(R"((\bwork|\bstart\w*\([^;]*\))?(\.|->)wait(_for|_until)?\()");
  const std::string text = without_comments(source);
  const auto line_of = [&](std::size_t at) {
    return std::to_string(1 + std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'));
  };
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), forbidden), end; it != end; ++it) {
    found.push_back(line_of(static_cast<std::size_t>(it->position())) + ": " + it->str());
  }
  static const std::regex deadline("deadline", std::regex::icase);
  for (std::sregex_iterator it(text.begin(), text.end(), waits), end; it != end; ++it) {
    if ((*it)[1].matched) continue;
    const auto begin = static_cast<std::size_t>(it->position());
    const std::string arguments = arguments_at(text, begin + it->length() - 1);
    if (!std::regex_search(arguments, deadline)) {
      found.push_back(line_of(begin) + ": " + it->str() + ") without a deadline");
    }
  }
  return found;
}

bool may_wait(const std::string& path) {
  return path.starts_with("base/gate.") || path.starts_with("sys/posix_");
}

TEST(NakedWait, NoneInTheSources) {
  const fs::path root = fs::path(LOCKSTEP_SOURCE_DIR) / "src";
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const fs::path& path = entry.path();
    if (path.extension() != ".h" && path.extension() != ".cc") continue;
    const std::string name = fs::relative(path, root).string();
    ++files;
    if (may_wait(name)) continue;
    std::ifstream in(path);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    for (const std::string& line : naked_waits(text)) {
      ADD_FAILURE() << "src/" << name << ":" << line << "; use Gate::wait with a Deadline";
    }
  }
  EXPECT_GT(files, 10);
}

TEST(NakedWait, IsFoundWithItsLine) {
  EXPECT_THAT(naked_waits("int a;\nstd::condition_variable cv;\n"),
              ElementsAre("2: condition_variable"));
  EXPECT_THAT(naked_waits("std::this_thread::sleep_for(1s);"), ElementsAre("1: sleep_for"));
  EXPECT_THAT(naked_waits("thread.detach();"), ElementsAre("1: detach("));
  EXPECT_THAT(naked_waits("if (fork() == 0)"), ElementsAre("1: fork("));
  EXPECT_THAT(naked_waits("\n\nflag.wait(false);"), ElementsAre("3: .wait() without a deadline"));
  EXPECT_THAT(naked_waits("future->wait_for(10s);"),
              ElementsAre("1: ->wait_for() without a deadline"));
}

TEST(NakedWait, WaitsWithADeadlineAreFine) {
  EXPECT_THAT(naked_waits("gate.wait([&] { return f(x); },\n  deadline_, spin);"), IsEmpty());
  EXPECT_THAT(naked_waits("work.wait(); return start(options).wait();"), IsEmpty());
  EXPECT_THAT(naked_waits("gate->wait(done, Deadline::never());"), IsEmpty());
  EXPECT_THAT(naked_waits("// no sleep_for, no fork() here\nint pitchfork(int);"), IsEmpty());
}

}  // namespace
}  // namespace lockstep
