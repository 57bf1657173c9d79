// HeldLines and LastLines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "launch/held_lines.h"
#include "launch/last_lines.h"

namespace lockstep::tool {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

class HeldLinesTest : public testing::Test {
 protected:
  std::vector<std::string> add(std::string_view bytes, Time now = Time()) {
    std::vector<std::string> lines;
    held_.add(bytes, now, [&](std::string_view line) { lines.emplace_back(line); });
    return lines;
  }
  std::vector<std::string> flush() {
    std::vector<std::string> lines;
    held_.flush([&](std::string_view line) { lines.emplace_back(line); });
    return lines;
  }
  HeldLines held_;
};

TEST_F(HeldLinesTest, WholeLinesPassAtOnce) {
  EXPECT_THAT(add("one\n\ntwo\n"), ElementsAre("one\n", "\n", "two\n"));
  EXPECT_EQ(held_.due(), std::nullopt);
}

TEST_F(HeldLinesTest, ABeginningWaitsForItsEnd) {
  EXPECT_THAT(add("one\ntw"), ElementsAre("one\n"));
  EXPECT_THAT(add("o\nth"), ElementsAre("two\n"));
  EXPECT_THAT(flush(), ElementsAre("th"));
  EXPECT_THAT(flush(), ElementsAre());
}

TEST_F(HeldLinesTest, ItWaitsFromItsFirstByte) {
  const Time start = Time() + 1s;
  add("a", start);
  add("b", start + 150ms);
  EXPECT_EQ(held_.due(), start + 200ms);
  flush();
  EXPECT_EQ(held_.due(), std::nullopt);
}

TEST_F(HeldLinesTest, AMebibyteStaysWholeButMemoryIsBounded) {
  const std::string line(std::size_t{1} << 20, 'x');
  EXPECT_THAT(add(line), ElementsAre());
  EXPECT_THAT(add("\n"), ElementsAre(line + "\n"));
  std::size_t shown = 0;
  for (int i = 0; i < 20; ++i) {
    for (const std::string& part : add(line)) shown += part.size();
  }
  EXPECT_GE(shown, std::size_t{16} << 20);
}

TEST(LastLines, KeepsTheEnd) {
  LastLines last;
  for (int i = 0; i < 25; ++i) last.add(std::to_string(i) + "\n");
  ASSERT_EQ(last.lines().size(), LastLines::kLines);
  EXPECT_EQ(last.lines().front(), "15");
  EXPECT_EQ(last.lines().back(), "24");
}

TEST(LastLines, PartsAreOneLineAndLongLinesAreCut) {
  LastLines last;
  last.add("be");
  last.add("gin\n");
  last.add(std::string(100'000, 'x'));
  last.add(std::string(100'000, 'x'));
  EXPECT_THAT(last.lines(), ElementsAre("begin", std::string(LastLines::kLongest, 'x')));
}

}  // namespace
}  // namespace lockstep::tool
