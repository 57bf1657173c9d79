// A lint, D9: the wall clock may jump by a day, so nothing in src/ reads it or waits by it. Times
// are those of MonotonicClock; the stamps of log lines are the log library's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

bool is_of_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Line and word of every use outside of comments.
std::vector<std::string> wall_clocks(const std::string& source) {
  // libstdc++'s high_resolution_clock is system_clock; the POSIX waits take times of it.
  static const std::set<std::string> clocks = {"system_clock",
                                               "high_resolution_clock",
                                               "utc_clock",
                                               "CLOCK_REALTIME",
                                               "CLOCK_REALTIME_COARSE",
                                               "CLOCK_REALTIME_ALARM",
                                               "CLOCK_TAI",
                                               "FUTEX_CLOCK_REALTIME",
                                               "gettimeofday",
                                               "timespec_get",
                                               "ftime",
                                               "pthread_cond_timedwait",
                                               "pthread_mutex_timedlock",
                                               "sem_timedwait",
                                               "mq_timedsend",
                                               "mq_timedreceive"};
  std::vector<std::string> found;
  std::istringstream lines(source);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string code = line.substr(0, line.find("//"));
    for (auto at = code.begin(); at != code.end();) {
      const auto begin = std::find_if(at, code.end(), is_of_word);
      at = std::find_if_not(begin, code.end(), is_of_word);
      const std::string word(begin, at);
      const bool asks_the_time = word == "time" && code.find("time(nullptr)") != std::string::npos;
      if (clocks.contains(word) || asks_the_time) {
        found.push_back(std::to_string(number) + ": " + word);
      }
    }
  }
  return found;
}

TEST(WallClock, D9IsNotUsedInTheSources) {
  int files = 0;
  for (const char* directory : {"src", "include"}) {
    const fs::path root = fs::path(LOCKSTEP_SOURCE_DIR) / directory;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      const fs::path& path = entry.path();
      if (path.extension() != ".h" && path.extension() != ".cc") continue;
      ++files;
      std::ifstream in(path);
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      for (const std::string& line : wall_clocks(text)) {
        ADD_FAILURE() << path.string() << ":" << line << "; use MonotonicClock and Deadline";
      }
    }
  }
  EXPECT_GT(files, 10);
}

TEST(WallClock, IsFoundWithItsLine) {
  EXPECT_THAT(wall_clocks("int a;\nauto t = std::chrono::system_clock::now();\n"),
              ElementsAre("2: system_clock"));
  EXPECT_THAT(wall_clocks("clock_gettime(CLOCK_REALTIME, &t);"), ElementsAre("1: CLOCK_REALTIME"));
  EXPECT_THAT(wall_clocks("auto seed = time(nullptr);"), ElementsAre("1: time"));
  EXPECT_THAT(wall_clocks("sem_timedwait(&s, &t);"), ElementsAre("1: sem_timedwait"));
  EXPECT_THAT(wall_clocks("// no system_clock\nclock_gettime(CLOCK_MONOTONIC, &t); "
                          "deadline.time(); my_system_clocks();"),
              IsEmpty());
}

}  // namespace
}  // namespace lockstep
