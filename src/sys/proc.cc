#include "sys/proc.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>

namespace lockstep::sys {
namespace {

bool is_plain(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./=:,@%+").find(c) != std::string_view::npos;
  });
}

std::string quoted(std::string_view word) {
  if (is_plain(word)) return std::string(word);
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string Command::to_string() const {
  std::string text;
  for (const std::string& word : argv) text += (text.empty() ? "" : " ") + quoted(word);
  return text;
}

std::string_view to_string(Signal signal) noexcept {
  switch (signal) {
    case Signal::hangup:
      return "HUP";
    case Signal::interrupt:
      return "INT";
    case Signal::terminate:
      return "TERM";
    case Signal::kill:
      return "KILL";
    case Signal::stop:
      return "STOP";
    case Signal::resume:
      return "CONT";
    case Signal::user1:
      return "USR1";
    case Signal::user2:
      return "USR2";
  }
  return "?";
}

std::string ExitStatus::to_string() const {
  switch (how) {
    case How::exited:
      return fmt::format("exited with {}", value);
    case How::signalled: {
      const char* name = sigabbrev_np(value);
      return fmt::format("killed by signal {} ({}){}", value, name != nullptr ? name : "?",
                         core_dumped ? ", core dumped" : "");
    }
    case How::unknown:
      break;
  }
  return "ended, its status was taken by somebody else";
}

}  // namespace lockstep::sys
