// printable: text of another process, safe to show on a terminal and in one line of a log.
//
//   printable("a\nb\x1b[2J")        // a\x0ab\x1b[2J
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Every byte that is not printable ASCII becomes its number: \x1b.
std::string printable(std::string_view text);

}  // namespace lockstep
