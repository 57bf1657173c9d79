// The settings lockstep reads from the environment, all of them, read once. docs/environment.md
// lists them, and what launchers set, which src/cluster reads.
#pragma once

#include <string>

#include "lockstep/coll/options.h"
#include "lockstep/log.h"

namespace lockstep {

struct Environment {
  LogLevel log_level = LogLevel::warning;  // LOCKSTEP_LOG
  std::string algorithms;                  // LOCKSTEP_ALGORITHMS, e.g. all_reduce=direct:0-64K
  std::string costs;                       // LOCKSTEP_COSTS, e.g. tcp.alpha=20
  coll::Engine engine = coll::Engine::automatic;  // LOCKSTEP_ENGINE, of join() without options
  std::string history_dir;  // LOCKSTEP_HISTORY_DIR: what was recorded goes there after a failure
  /// LOCKSTEP_FAILURE_FILE, of `lockstep launch`: the file that names the ranks that caused a
  /// failure of this process. The first line has their numbers, the rest says why. Not written if
  /// this process failed by itself.
  std::string failure_file;
  /// The user has settled when glibc's allocator gives memory back: MALLOC_TRIM_THRESHOLD_,
  /// MALLOC_MMAP_THRESHOLD_, or malloc in GLIBC_TUNABLES.
  bool allocator_is_tuned = false;
};

/// Read on first use. A value that cannot be understood is ignored with a warning on standard
/// error.
const Environment& environment();

/// For tests: parses the environment anew.
Environment read_environment();

}  // namespace lockstep
