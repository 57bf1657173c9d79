// The keeper: a small process that tidies up behind a launcher that was killed.
//
// The kernel kills the ranks with their launcher, but not what the ranks have started, and nobody
// would remove the directory of their sockets. `lockstep exec --keep DIR` waits until its launcher
// has died, kills every process with that launcher's pid in LOCKSTEP_LAUNCHER_PID, and removes DIR.
// A launcher that ends by itself kills its keeper first.
#pragma once

#include <string>
#include <vector>

namespace lockstep::tool {

struct KeeperOptions {
  int launcher = 0;  // its pid
  std::string directory;
};

/// Returns the exit code when the launcher has died and all is tidy.
int run_keeper(const KeeperOptions& options);

/// The command line that runs the options above in a child of this process.
std::vector<std::string> keeper_command(const KeeperOptions& options);

/// For the keeper of this process: without what would make it a victim of an outer launcher's
/// keeper.
std::vector<std::string> keeper_environment(std::vector<std::string> own);

/// Kills the processes of this user whose environment holds this entry, "NAME=value". Returns how
/// many were found.
int kill_all_with(const std::string& entry);

}  // namespace lockstep::tool
