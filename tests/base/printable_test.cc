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

}  // namespace
}  // namespace lockstep
