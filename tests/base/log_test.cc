#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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

}  // namespace
}  // namespace lockstep
