#include "base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/gate.h"
#include "base/thread.h"

namespace lockstep {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

class Log : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::warning);
    set_log_sink([this](LogLevel level, std::string_view text) {
      lines_.emplace_back(level, std::string(text));
    });
  }
  void TearDown() override {
    set_log_sink({});
    set_log_level(LogLevel::warning);
  }

  // Without a lock: the log promises one call at a time.
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

TEST_F(Log, MessagesReachTheSinkFormatted) {
  log_warning("rank {} of {}", 3, 4);
  log_error("gone");
  EXPECT_THAT(lines_,
              ElementsAre(Pair(LogLevel::warning, "rank 3 of 4"), Pair(LogLevel::error, "gone")));
}

TEST_F(Log, LevelDropsWhatIsBelow) {
  const LogLevel levels[] = {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error};
  for (const LogLevel limit : levels) {
    lines_.clear();
    set_log_level(limit);
    log_debug("d");
    log_info("i");
    log_warning("w");
    log_error("e");
    EXPECT_EQ(lines_.size(), std::size(levels) - static_cast<std::size_t>(limit));
    for (const auto& line : lines_) EXPECT_GE(line.first, limit);
  }
  lines_.clear();
  set_log_level(LogLevel::off);
  log_error("e");
  EXPECT_THAT(lines_, IsEmpty());
}

struct Counted {
  int* formatted;
};
int format_as_count(const Counted& counted) { return ++*counted.formatted; }

}  // namespace
}  // namespace lockstep

template <>
struct fmt::formatter<lockstep::Counted> : fmt::formatter<int> {
  template <class Context>
  auto format(const lockstep::Counted& counted, Context& context) const {
    return fmt::formatter<int>::format(lockstep::format_as_count(counted), context);
  }
};

namespace lockstep {
namespace {

TEST_F(Log, DroppedMessagesAreNotFormatted) {
  int formatted = 0;
  log_info("{}", Counted{&formatted});
  EXPECT_EQ(formatted, 0);
  log_warning("{}", Counted{&formatted});
  EXPECT_EQ(formatted, 1);
}

TEST_F(Log, SinkIsCalledByOneThreadAtATime) {
  {
    std::vector<std::jthread> writers(8);
    for (auto& writer : writers) {
      writer = std::jthread([] {
        for (int i = 0; i < 100; ++i) log_warning("{}", i);
      });
    }
  }
  EXPECT_EQ(lines_.size(), 800U);
}

TEST_F(Log, SinkThatThrowsDoesNoHarm) {
  set_log_sink([](LogLevel, std::string_view) { throw std::runtime_error("broken sink"); });
  EXPECT_NO_THROW(log_error("x"));
}

TEST_F(Log, WithoutASinkMessagesGoToStandardError) {
  set_log_sink({});
  ::testing::internal::CaptureStderr();
  log_warning("{} is late", "rank 2");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("lockstep"));
  EXPECT_THAT(text, HasSubstr("warning"));
  EXPECT_THAT(text, HasSubstr("rank 2 is late"));
}

TEST_F(Log, BracesInAMessageAreText) {
  set_log_sink({});
  ::testing::internal::CaptureStderr();
  log_warning("{}", "{} {nonsense}");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("{} {nonsense}"));
}

/// Standard error is a pipe that is full, until somebody reads it.
class FullPipe {
 public:
  FullPipe() : before_(::dup(STDERR_FILENO)) {
    EXPECT_EQ(::pipe2(ends_, O_NONBLOCK | O_CLOEXEC), 0);
    const std::string filling(4096, '.');
    while (::write(ends_[1], filling.data(), filling.size()) > 0) {
    }
    ::fcntl(ends_[1], F_SETFL, 0);  // who writes now blocks
    ::dup2(ends_[1], STDERR_FILENO);
  }
  ~FullPipe() {
    give_back();
    ::close(ends_[0]);
    ::close(before_);
  }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;

  /// What has been written since, when all of it is.
  std::string read_all() {
    ::fcntl(ends_[0], F_SETFL, 0);
    std::jthread flusher([this] {
      flush_log();
      give_back();  // the end of what is read
    });
    std::string text;
    std::vector<char> buffer(65536);
    for (ssize_t got = 0; (got = ::read(ends_[0], buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    flusher.join();
    return text.substr(text.find_first_not_of('.'));
  }

 private:
  void give_back() {
    ::dup2(before_, STDERR_FILENO);
    if (ends_[1] >= 0) ::close(std::exchange(ends_[1], -1));
  }

  int before_;
  int ends_[2] = {-1, -1};
};

void on_an_own_thread(const std::function<void()>& body) {
  start_thread(
      "ls-test", [&](const std::stop_token&) { body(); },
      [](const Status& why) { ADD_FAILURE() << why.message(); })
      .join();
}

TEST_F(Log, D27AFullPipeHoldsUpNoThreadOfOurs) {
  set_log_sink({});
  FullPipe standard_error;
  on_an_own_thread([] {
    log_warning("one");
    log_warning("two");
  });
  log_warning("three");  // a user's thread waits a moment
  EXPECT_THAT(standard_error.read_all(),
              ContainsRegex("warning. one\n.*warning. two\n.*warning. three\n"));
}

TEST_F(Log, D27LinesThatFindNoRoomAreCounted) {
  set_log_sink({});
  FullPipe standard_error;
  const std::string line(10'000, 'x');
  on_an_own_thread([&] {
    log_warning("first");
    for (int i = 0; i < 200; ++i) log_warning("{}", line);
    log_warning("last");
  });
  const std::string text = standard_error.read_all();
  EXPECT_THAT(text, HasSubstr("first"));
  EXPECT_THAT(text, Not(HasSubstr("last")));
  std::size_t written = 0;
  for (auto at = text.find(line); at != std::string::npos; at = text.find(line, at + 1)) ++written;
  EXPECT_GE(written, 100U);
  EXPECT_LE(written, 105U);
  EXPECT_THAT(text, EndsWith(fmt::format("{} lines of the log were dropped here: it was not read "
                                         "in time\n",
                                         201 - written)));
  // From then on there is room again.
  ::testing::internal::CaptureStderr();
  on_an_own_thread([] { log_warning("afterwards"); });
  flush_log();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("afterwards"));
}

TEST_F(Log, D27ASinkThatBlocksHoldsUpNoThreadOfOurs) {
  Gate gate;
  std::atomic<bool> open = false;
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view text) {
    gate.wait([&] { return open.load(); }, Deadline::never());
    lines.emplace_back(text);
  });
  on_an_own_thread([] { log_warning("one"); });
  log_warning("two");
  const auto before = std::chrono::steady_clock::now();
  log_warning("three");  // known to be stuck
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(100));
  open = true;
  gate.notify();
  set_log_sink({});  // the old one gets what was written before
  EXPECT_THAT(lines, ElementsAre("one", "two", "three"));
}

TEST_F(Log, AChildOfAForkWritesItsOwnLines) {
  set_log_sink({});
  on_an_own_thread([] { log_warning("of the parent"); });
  flush_log();
  FullPipe standard_error;
  on_an_own_thread([] { log_warning("parent's"); });
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(1);
    ::dup2(ends[1], STDERR_FILENO);
    log_warning("child's");
    flush_log();
    char text[256] = {};
    const bool got = ::read(ends[0], text, sizeof(text) - 1) > 0;
    const std::string_view line(text);
    ::_exit(got && line.ends_with("child's\n") && line.find("parent") == line.npos ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const std::string text = standard_error.read_all();
  EXPECT_THAT(text, HasSubstr("parent's"));
  EXPECT_THAT(text, Not(HasSubstr("child's")));
}

}  // namespace
}  // namespace lockstep
