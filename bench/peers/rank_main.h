// The one loop that measures: every contestant's program is this and a Contestant.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "bench/peers/contestant.h"

namespace lockstep::bench::peers {

/// The command line of a rank's program: pairs of --name value.
struct RankOptions {
  std::string directory;  // where the driver's socket and board are; for files of the contestant
  std::string name;       // of the contestant in this run
  std::string variant;    // which algorithm or mode; empty: the only one
  int ranks = 2;
  int rank = -1;          // -1: told by the launcher's environment
  std::string network;    // ranks enter the network namespaces <network>0, <network>1, ...
  std::string addresses;  // by rank, separated by commas
};

using MakeContestant = std::function<std::unique_ptr<Contestant>(const RankOptions&)>;

/// Enters the rank's network, makes the contestant, pins this thread to the core of its rank (if
/// there is one for each; threads that the contestant has made stay free, which suits Gloo best)
/// and carries out orders until told to quit or the driver is gone. The exit code.
int rank_main(int argc, char** argv, const MakeContestant& make);

/// The network namespace this process was started in; -1 if it never left it.
int first_network() noexcept;
/// The namespace that rank_main entered; -1 if none.
int entered_network() noexcept;

}  // namespace lockstep::bench::peers
