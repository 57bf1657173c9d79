// Text of unknown content, made safe to show on a terminal and in one line of a log.
//
//   printable("a\nb\x1b[2J")    // text of another process: a\x0ab\x1b[2J
//   one_line(reason)           // the same for a message, at most 512 bytes
//   escape_controls("name\n")  // text that the user wrote: name\x0a
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// True if every byte is printable ASCII, so that printable() changes nothing.
bool is_printable(std::string_view text) noexcept;

/// Every byte that is not printable ASCII becomes its number: \x1b.
std::string printable(std::string_view text);

/// printable(), and if that is longer than `most` bytes its beginning and "...".
std::string one_line(std::string_view text, std::size_t most = 512);

/// Each line is printable(), and all but the first are indented: none looks like a line of the log.
std::string printable_lines(std::string_view text);

/// Every control character of ASCII becomes its number. UTF-8 stays readable.
std::string escape_controls(std::string_view text);

}  // namespace lockstep
