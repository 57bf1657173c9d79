// The environment of a rank: the user's own, exactly, and what tells the rank who and where it is.
//
//   LOCKSTEP_RANK LOCKSTEP_SIZE LOCKSTEP_LOCAL_RANK LOCKSTEP_LOCAL_SIZE LOCKSTEP_ADDRESSES
//   LOCKSTEP_GENERATION_HINT LOCKSTEP_LAUNCHER_PID LOCKSTEP_FAILURE_FILE TF_CONFIG, and if told:
//   LOCKSTEP_BIND LOCKSTEP_KEY_FILE LOCKSTEP_INSECURE LOCKSTEP_PLAINTEXT_DATA LOCKSTEP_HISTORY_DIR
#pragma once

#include <string>
#include <vector>

#include "launch/hosts.h"

namespace lockstep::tool {

/// What all ranks of one start have in common.
struct ClusterSettings {
  Placement placement;
  std::vector<std::string> addresses;   // by rank, for LOCKSTEP_ADDRESSES
  std::vector<std::string> tf_workers;  // by rank, for TF_CONFIG
  std::string bind = {};                // empty: not told
  std::string key_file = {};            // empty: not told
  bool insecure = false;
  bool plaintext_data = false;
  std::string history_dir = {};  // empty: not told
  std::string failure_dir = {};  // where ranks name the ranks that made them fail
  int restarts = 0;
  int launcher_pid = 0;
};

/// The file of a rank in failure_dir.
std::string failure_file(const ClusterSettings& cluster, int rank);

/// "NAME=value" each. `own` is what the launcher itself was given.
std::vector<std::string> rank_environment(const std::vector<std::string>& own,
                                          const ClusterSettings& cluster, int local_rank);

/// This process's own environment.
std::vector<std::string> own_environment();

}  // namespace lockstep::tool
