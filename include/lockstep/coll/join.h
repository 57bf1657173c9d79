// Joining: processes of one machine or of several become the ranks of a group.
//
//   Session group = join();            // under lockstep launch, mpirun, srun, torchrun, TF_CONFIG
//   group.all_reduce(Op::sum, std::span(x));
//
// Ranks of one host share memory; ranks of different hosts speak TCP, with encryption if they have
// a key. Ranks known to be on one host open no port (docs/processes.md). All ranks join with the
// same addresses and options; who gives others is refused, with the difference named on both sides.
//
// A process may join again, for instance after its group has failed: the others must, too.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/cluster_resolver.h"
#include "lockstep/coll/batch.h"
#include "lockstep/coll/session.h"

namespace lockstep::coll {

/// How soon a silent rank is noticed. A crash is noticed at once, whatever these say.
struct Liveness {
  std::chrono::nanoseconds pulse = std::chrono::milliseconds(100);
  std::chrono::nanoseconds suspect = std::chrono::seconds(1);  // a warning names the rank
  std::chrono::nanoseconds dead = std::chrono::seconds(3);     // the generation ends
};

struct JoinOptions {
  /// Where each rank listens, by rank: "host:port", "[v6]:port" or "unix:path". All but the first
  /// may be empty: those ranks choose a port of their own.
  std::vector<std::string> addresses;
  int rank = 0;
  /// The secret that ranks of several hosts share: 64 hexadecimal digits. Without one they refuse
  /// to join unless `insecure`.
  std::string key = {};
  bool insecure = false;
  /// With a key: callers are authenticated, but data travels unencrypted.
  bool plaintext_data = false;
  /// Where to listen instead of the own entry of `addresses`: a host, or a host and a port.
  std::string bind = {};
  /// For all ranks to arrive. Those missing are named every five seconds.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  Liveness liveness = {};
  /// What the bits of results depend on, in words (libraries, threads, ...). Ranks that differ get
  /// a warning, or an error with require_same_bits.
  std::string arithmetic = {};
  bool require_same_bits = false;
  SessionOptions options = {};
};

/// ConfigError if the ranks were given different things, Timeout naming the missing ranks, PeerLost
/// if one dies meanwhile, SystemError if the port is taken or memory is short.
[[nodiscard]] Session join(const JoinOptions& options);

/// The addresses, the rank, the key and whether to be insecure as the environment says.
[[nodiscard]] JoinOptions join_options_from_environment();
/// The same, but the addresses and the rank as a resolver says; an empty cluster is one rank.
/// ConfigError for a task that is no rank (ps, evaluator).
[[nodiscard]] JoinOptions join_options_for(const ClusterResolver& resolver);
[[nodiscard]] Session join();

}  // namespace lockstep::coll
