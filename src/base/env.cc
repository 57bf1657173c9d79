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

coll::Engine parse_engine(std::string_view text) {
  if (text == "mpi") return coll::Engine::mpi;
  if (text == "host") return coll::Engine::host;
  if (text != "automatic") {
    std::fprintf(stderr, "lockstep: LOCKSTEP_ENGINE=%.*s is not one of automatic, host, mpi\n",
                 static_cast<int>(text.size()), text.data());
  }
  return coll::Engine::automatic;
}

bool allocator_is_tuned() {
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  return std::getenv("MALLOC_TRIM_THRESHOLD_") != nullptr ||
         std::getenv("MALLOC_MMAP_THRESHOLD_") != nullptr ||
         (tunables != nullptr && std::string_view(tunables).find("malloc") != std::string::npos);
}

}  // namespace

Environment read_environment() {
  Environment environment;
  if (const char* value = std::getenv("LOCKSTEP_LOG")) environment.log_level = parse_level(value);
  if (const char* value = std::getenv("LOCKSTEP_ALGORITHMS")) environment.algorithms = value;
  if (const char* value = std::getenv("LOCKSTEP_COSTS")) environment.costs = value;
  if (const char* value = std::getenv("LOCKSTEP_HISTORY_DIR")) environment.history_dir = value;
  if (const char* value = std::getenv("LOCKSTEP_FAILURE_FILE")) environment.failure_file = value;
  if (const char* value = std::getenv("LOCKSTEP_ENGINE")) environment.engine = parse_engine(value);
  environment.allocator_is_tuned = allocator_is_tuned();
  return environment;
}

const Environment& environment() {
  static const Environment environment = read_environment();
  return environment;
}

}  // namespace lockstep
