// Where lockstep's messages go. The library never prints by itself except through this sink, which
// writes to standard error by default.
//
//   lockstep::set_log_sink([](lockstep::LogLevel level, std::string_view text) { ... });
#pragma once

#include <functional>
#include <string_view>

namespace lockstep {

enum class LogLevel { debug, info, warning, error, off };

using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Replaces the sink; an empty function restores the default. Thread-safe. The sink may be called
/// from any thread, one call at a time; it must not log through lockstep itself, nor replace itself.
/// A sink that blocks, or a standard error that nobody reads, holds up no thread of lockstep: lines
/// are queued up to 1 MiB. Later ones are dropped, and a line tells how many. The old sink gets what
/// was written before, and is not called any more once this returns.
void set_log_sink(LogSink sink);

/// Messages below this level are dropped. Default: LOCKSTEP_LOG (debug, info, warning, error, off),
/// else warning.
void set_log_level(LogLevel level);

}  // namespace lockstep
