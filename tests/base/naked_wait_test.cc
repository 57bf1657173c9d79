// A lint: every wait in src/ goes through something that takes a Deadline, and every thread is
// joined. Fails with file:line for a condition variable, a sleep, a wait without a deadline,
// detach() or fork(). The gate itself and the POSIX side of sys are where the real things live.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
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

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Calls `found` with the place of every `what` in the text that does not continue a longer word.
template <class Found>
void each_place(const std::string& text, const std::string& what, Found&& found) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    if (at > 0 && in_word(what.front()) && in_word(text[at - 1])) continue;
    found(at);
  }
}

// Two receivers need no look at the arguments: a Gate, whose wait() cannot be called without a
// Deadline, and a Work, whose operation has one. `at` is where ".wait(" or "->wait(" begins.
bool is_gate_or_work(const std::string& text, std::size_t at) {
  const std::size_t begin = text.find_last_of("\n;{", at) + 1;
  const std::string before = text.substr(begin, at - begin);
  return before.find("gate") != std::string::npos || before.ends_with("work") ||
         (before.ends_with(")") && before.find("start") != std::string::npos);
}

// Whether a call stands alone: a thread's detach() does, a tensor's detach() is used for its value.
bool is_whole_statement(const std::string& text, std::size_t at) {
  const std::size_t begin = text.find_last_of(";{}", at) + 1;
  const std::string before = text.substr(begin, at - begin);
  return before.find("return") == std::string::npos &&
         std::all_of(before.begin(), before.end(), [](char c) {
           return in_word(c) || std::string_view(".->[]\n ").find(c) != std::string_view::npos;
         });
}

std::vector<std::string> naked_waits(const std::string& source) {
  const std::string text = without_comments(source);
  const auto line_of = [&](std::size_t at) {
    return std::to_string(1 + std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'));
  };
  std::vector<std::string> found;
  for (const char* word : {"condition_variable", "sleep_for", "sleep_until", "usleep", "nanosleep",
                           "fork(", "vfork(", "SYS_futex"}) {
    each_place(text, word, [&](std::size_t at) { found.push_back(line_of(at) + ": " + word); });
  }
  each_place(text, "detach(", [&](std::size_t at) {
    if (is_whole_statement(text, at)) found.push_back(line_of(at) + ": detach(");
  });
  for (const std::string call : {".wait(", "->wait(", ".wait_for(", "->wait_for("}) {
    each_place(text, call, [&](std::size_t at) {
      const std::string arguments = arguments_at(text, at + call.size() - 1);
      if (arguments.find("eadline") != std::string::npos || is_gate_or_work(text, at)) return;
      found.push_back(line_of(at) + ": " + call + ") without a deadline");
    });
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
  EXPECT_THAT(naked_waits("f(); threads[i]->detach();"), ElementsAre("1: detach("));
  EXPECT_THAT(naked_waits("if (fork() == 0)"), ElementsAre("1: fork("));
  EXPECT_THAT(naked_waits("\n\nflag.wait(false);"), ElementsAre("3: .wait() without a deadline"));
  EXPECT_THAT(naked_waits("future->wait_for(10s);"),
              ElementsAre("1: ->wait_for() without a deadline"));
}

TEST(NakedWait, WaitsWithADeadlineAreFine) {
  EXPECT_THAT(naked_waits("gate.wait([&] { return f(x); },\n  deadline_, spin);"), IsEmpty());
  EXPECT_THAT(naked_waits("group->gate(2).wait(done, patience);"), IsEmpty());
  EXPECT_THAT(naked_waits("work.wait(); return start(options).wait();"), IsEmpty());
  EXPECT_THAT(naked_waits("gate->wait(done, Deadline::never());"), IsEmpty());
  EXPECT_THAT(naked_waits("f(); return x.detach(); auto y = x.detach().clone();"), IsEmpty());
  EXPECT_THAT(naked_waits("// no sleep_for, no fork() here\nint pitchfork(int);"), IsEmpty());
}

}  // namespace
}  // namespace lockstep
