#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "base/env.h"
#include "base/mutex.h"

namespace lockstep {
namespace {

// The log sink is one of the two globals of the library (the other is the environment).
struct Log {
  Mutex mutex;
  LogSink sink GUARDED_BY(mutex);
  std::atomic<LogLevel> level{environment().log_level};
  std::shared_ptr<spdlog::logger> standard_error = [] {
    auto logger = std::make_shared<spdlog::logger>(
        "lockstep", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    logger->set_level(spdlog::level::trace);
    logger->set_pattern("[lockstep %H:%M:%S.%e %^%l%$] %v");
    return logger;
  }();
};

Log& the_log() {
  static Log log;
  return log;
}

spdlog::level::level_enum to_spdlog(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      break;
  }
  return spdlog::level::off;
}

}  // namespace

void set_log_sink(LogSink sink) {
  Log& log = the_log();
  const MutexLock lock(log.mutex);
  log.sink = std::move(sink);
}

void set_log_level(LogLevel level) { the_log().level = level; }

bool log_enabled(LogLevel level) noexcept { return level >= the_log().level.load(); }

void write_log(LogLevel level, std::string_view text) noexcept {
  Log& log = the_log();
  const MutexLock lock(log.mutex);
  try {
    if (log.sink) {
      log.sink(level, text);
    } else {
      log.standard_error->log(to_spdlog(level), "{}", text);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): a broken sink must not end the run
  }
}

}  // namespace lockstep
