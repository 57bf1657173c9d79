#include "base/env.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace lockstep {
namespace {

LogLevel parse_level(std::string_view text) {
  if (text == "debug") return LogLevel::debug;
  if (text == "info") return LogLevel::info;
  if (text == "warning") return LogLevel::warning;
  if (text == "error") return LogLevel::error;
  if (text == "off") return LogLevel::off;
  std::fprintf(stderr,
               "lockstep: LOCKSTEP_LOG=%.*s is not one of debug, info, warning, error, off\n",
               static_cast<int>(text.size()), text.data());
  return LogLevel::warning;
}

}  // namespace

Environment read_environment() {
  Environment environment;
  if (const char* value = std::getenv("LOCKSTEP_LOG")) environment.log_level = parse_level(value);
  if (const char* value = std::getenv("LOCKSTEP_ALGORITHMS")) environment.algorithms = value;
  return environment;
}

const Environment& environment() {
  static const Environment environment = read_environment();
  return environment;
}

}  // namespace lockstep
