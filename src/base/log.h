// Writing log messages: log_info("rank {} joined", rank). Formatting happens only if the level is
// on.
//
// Threads of lockstep never wait for the sink: it may be a pipe that nobody reads, or a function of
// the user's that blocks. Lines go through a queue of at most 1 MiB. A line that finds no room is
// dropped. A line of the log tells how many were, at their place.
//
// As soon as there is a thread of lockstep (thread.h), the thread `ls-log` hands lines to the sink.
// A thread of the user's then waits for its own line at most 100 ms, and not at all if the sink is
// known to be stuck. Before, and in a simulation, the thread that logs hands over its line itself.
// A child of fork() starts with an empty queue and without that thread.
#pragma once

#include <fmt/format.h>

#include <atomic>

#include "lockstep/log.h"

namespace lockstep {

bool log_enabled(LogLevel level) noexcept;
void write_log(LogLevel level, std::string_view text) noexcept;
/// Waits until the sink has got every line written so far, at most a second. The end of the process
/// does the same.
void flush_log() noexcept;

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) write_log(level, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::debug, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::info, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::warning, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::error, format, std::forward<Args>(args)...);
}

}  // namespace lockstep
