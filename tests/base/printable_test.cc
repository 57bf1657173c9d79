#include "base/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

TEST(Printable, LeavesPlainTextAlone) {
  EXPECT_EQ(printable("rank 3: \"w\" [2, 2] ~"), "rank 3: \"w\" [2, 2] ~");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, SpellsOutWhatATerminalWouldObey) {
  EXPECT_EQ(printable("a\nb\x1b[2J\x7f"), "a\\x0ab\\x1b[2J\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");  // the same as an escape code of one character
  EXPECT_EQ(printable(std::string_view("\0x", 2)), "\\x00x");
}

TEST(OneLine, IsAtMostThatLong) {
  EXPECT_EQ(one_line("a\nb"), "a\\x0ab");
  EXPECT_EQ(one_line(std::string(512, 'x')), std::string(512, 'x'));
  EXPECT_EQ(one_line(std::string(513, 'x')), std::string(509, 'x') + "...");
  EXPECT_EQ(one_line(std::string(300, '\x1b')).size(), 512U);
  EXPECT_EQ(one_line("12345678", 8), "12345678");
  EXPECT_EQ(one_line("123456789", 8), "12345...");
  EXPECT_EQ(one_line("\n\n\n", 8), "\\x0a\\...");
}

TEST(PrintableLines, NoLineLooksLikeOneOfTheLog) {
  EXPECT_EQ(printable_lines(""), "");
  EXPECT_EQ(printable_lines("one\n  rank 1: two"), "one\n  rank 1: two");
  EXPECT_EQ(printable_lines("one\n[lockstep] \x1b[2Jtwo\n"), "one\n  [lockstep] \\x1b[2Jtwo\n  ");
  const std::string once = printable_lines("a\nb\r\n\n c");
  EXPECT_EQ(once, "a\n  b\\x0d\n  \n c");
  EXPECT_EQ(printable_lines(once), once);
}

TEST(EscapeControls, LeavesWhatTheUserWroteReadable) {
  EXPECT_EQ(escape_controls("h\u00f6st:1\n\x7f"), "h\u00f6st:1\\x0a\\x7f");
  EXPECT_EQ(escape_controls(std::string_view("\0~ ", 3)), "\\x00~ ");
}

TEST(Printable, IsWhatItWouldLeaveAlone) {
  for (const std::string_view text : {"", "rank 3: \"w\" ~", "\n", "a\x1f", "\x7f", "\xc3\xb6"}) {
    EXPECT_EQ(is_printable(text), printable(text) == text) << printable(text);
  }
}

}  // namespace
}  // namespace lockstep
