// Pairs: latency and bandwidth between every two ranks, one pair after another.
#pragma once

#include <string>
#include <vector>

#include "lockstep/coll/session.h"

namespace lockstep::tool {

struct Pair {
  int a = 0;
  int b = 0;
  std::string transport;
  double latency = 0;    // microseconds, one way: half a round trip of 8 bytes
  double bandwidth = 0;  // GB/s, messages of 1 MiB to and fro
};

/// With more ranks only the pairs with rank 0 are measured.
inline constexpr int kMostRanksOfAllPairs = 16;

/// A collective; every rank gets all pairs.
std::vector<Pair> measure_pairs(coll::Session& group);

}  // namespace lockstep::tool
