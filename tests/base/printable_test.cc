#include "base/printable.h"

#include <gtest/gtest.h>

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
