// Work: what an algorithm makes the busiest rank do, as a formula of the request and the layout.
// Each row of the catalogue (algorithm.cc) has one; cost.h turns it into microseconds.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace lockstep::plan {

/// What an algorithm costs the rank (or host) that has most to do. Rounds are latencies one after
/// another; messages those it handles besides; bytes are counted in one direction.
struct Work {
  double rounds = 0;
  double messages = 0;
  double bytes = 0;     // sent or received by the busiest rank
  double crossing = 0;  // leaving the busiest host, if there are several
  double inside = 0;    // of bytes: within a host, while others cross, if there are several
  double apart = 0;     // the same, while nothing crosses: rounds of whole vectors, a first chunk
  double reduced = 0;   // bytes read and written by the busiest rank's reductions and copies
  double peers = 0;     // ranks that it exchanges messages with, at most: its connections
};

/// The quantities all formulas are written in.
struct Terms {
  Terms(const Request& request, const Layout& on, std::uint64_t element_bytes);

  const Layout& layout;
  int n;
  int replicas;
  double depth;             // ceil(log2 n)
  double size = 0;          // bytes of the whole vector
  double chunk = 0;         // bytes of a chunk
  double staged_chunk = 0;  // of one that goes through slots
  double partial = 1;       // bytes of a partial sum by those of a value
  double pieces = 0;        // what the rank with the most subtrees sends per value
  double staged = 0;        // what it reads and writes to add them up
  int per_rank = 1;         // most replicas of a rank
  bool aligned = true;      // each rank's replicas are one subtree of the fixed tree
  int host = 0;             // most ranks of a host
  int hosts = 1;
  double share = 0;  // (n - 1) / n
  double far = 0;    // the part of the ranks that are on other hosts
};

/// Ranks that the one with the most of them exchanges messages with, where each rank's replicas are
/// one subtree of the fixed tree: by doubling.cc, and by halving.cc on the way up.
int doubling_peers(const Layout& layout);
int halving_peers(const Layout& layout);

/// One formula per algorithm, named as its maker (makers.h). For two ranks or more.
namespace work {

Work all_reduce_direct(const Terms& t);
Work all_reduce_doubling(const Terms& t);
Work all_reduce_halving(const Terms& t);
Work all_reduce_tree(const Terms& t);
Work all_reduce_hierarchical(const Terms& t);
Work all_reduce_ring(const Terms& t);
Work all_reduce_one_pass(const Terms& t);
Work all_reduce_slots(const Terms& t);
Work all_reduce_staged(const Terms& t);

Work reduce_tree(const Terms& t);
Work reduce_direct(const Terms& t);
Work reduce_one_pass(const Terms& t);

Work broadcast_tree(const Terms& t);
Work broadcast_scatter_gather(const Terms& t);
Work broadcast_shared(const Terms& t);

Work all_gather_direct(const Terms& t);
Work all_gather_bruck(const Terms& t);
Work all_gather_ring(const Terms& t);
Work all_gather_shared(const Terms& t);

Work reduce_scatter_direct(const Terms& t);
Work reduce_scatter_halving(const Terms& t);
Work reduce_scatter_tree(const Terms& t);
Work reduce_scatter_ring(const Terms& t);
Work reduce_scatter_shared(const Terms& t);

Work gather_direct(const Terms& t);
Work gather_tree(const Terms& t);
Work gather_shared(const Terms& t);

Work scatter_direct(const Terms& t);
Work scatter_tree(const Terms& t);
Work scatter_shared(const Terms& t);

Work all_to_all_direct(const Terms& t);
Work all_to_all_bruck(const Terms& t);
Work all_to_all_shared(const Terms& t);

Work barrier_dissemination(const Terms& t);
Work barrier_shared(const Terms& t);

Work send_receive_direct(const Terms& t);
Work send_receive_shared(const Terms& t);

}  // namespace work
}  // namespace lockstep::plan
