#include "plan/algorithm.h"

#include <algorithm>

#include "plan/makers.h"
#include "plan/work.h"

namespace lockstep::plan {
namespace {

std::string always(const Request& /*request*/, const Layout& /*layout*/) { return {}; }

constexpr Access kMessages = Access::messages;
constexpr Access kSlotsOnly = Access::slots;
constexpr Access kShared = Access::shared;
constexpr Order kTree = Order::fixed_tree;
constexpr Order kAny = Order::any;

// Grouped by kind; the first of each kind serves every request by messages alone.
constexpr Algorithm kAlgorithms[] = {
    {Kind::all_reduce, "direct", kMessages, kTree,
     "every rank owns a chunk, receives all pieces of it, adds them once and shares the sum",
     always, all_reduce_direct, work::all_reduce_direct},
    {Kind::all_reduce, "doubling", kMessages, kTree,
     "both sides of each tree node swap whole sums: fewest rounds, for small counts",
     refuses_unaligned, all_reduce_doubling, work::all_reduce_doubling},
    {Kind::all_reduce, "halving", kMessages, kTree,
     "sums are halved up the tree and put together on the way back: least data, for large counts",
     refuses_unaligned, all_reduce_halving, work::all_reduce_halving},
    {Kind::all_reduce, "tree", kMessages, kTree,
     "up the tree to rank 0 and down again, chunk by chunk", always, all_reduce_tree,
     work::all_reduce_tree},
    {Kind::all_reduce, "hierarchical", kMessages, kTree,
     "to a leader on each host, a direct exchange among leaders, and back", refuses_scattered_hosts,
     all_reduce_hierarchical, work::all_reduce_hierarchical},
    {Kind::all_reduce, "ring", kMessages, kAny,
     "sums and results travel around a ring: least data, its own order of additions", always,
     all_reduce_ring, work::all_reduce_ring},
    {Kind::all_reduce, "one_pass", kShared, kTree,
     "each rank adds its slice of all inputs in shared memory and stores it to all outputs", always,
     all_reduce_one_pass, work::all_reduce_one_pass},
    {Kind::all_reduce, "slots", kSlotsOnly, kTree,
     "inputs are staged in shared slots and every rank adds them: one synchronisation",
     refuses_slots, all_reduce_slots, work::all_reduce_slots, slots_slot_elements},
    {Kind::all_reduce, "staged", kSlotsOnly, kTree,
     "chunk by chunk through slots: each rank adds its part of everybody's, in place",
     refuses_staged, all_reduce_staged, work::all_reduce_staged, staged_slot_elements},

    {Kind::reduce, "tree", kMessages, kTree, "up the tree to the root, chunk by chunk", always,
     reduce_tree, work::reduce_tree},
    {Kind::reduce, "direct", kMessages, kTree, "the root receives all pieces and adds them once",
     always, reduce_direct, work::reduce_direct},
    {Kind::reduce, "one_pass", kShared, kTree,
     "each rank adds its slice of all inputs into the root's output", always, reduce_one_pass,
     work::reduce_one_pass},

    {Kind::broadcast, "tree", kMessages, kTree, "down a binomial tree, chunk by chunk", always,
     broadcast_tree, work::broadcast_tree},
    {Kind::broadcast, "scatter_gather", kMessages, kTree,
     "the root scatters slices, which then travel around the ring", always,
     broadcast_scatter_gather, work::broadcast_scatter_gather},
    {Kind::broadcast, "shared", kShared, kTree, "every rank copies from the root's memory", always,
     broadcast_shared, work::broadcast_shared},

    {Kind::all_gather, "direct", kMessages, kTree, "every rank sends its part to every other",
     always, all_gather_direct, work::all_gather_direct},
    {Kind::all_gather, "bruck", kMessages, kTree,
     "in round k a rank hands on the 2^k parts it has: log2(n) rounds and peers", always,
     all_gather_bruck, work::all_gather_bruck},
    {Kind::all_gather, "ring", kMessages, kTree, "parts travel around the ring", always,
     all_gather_ring, work::all_gather_ring},
    {Kind::all_gather, "shared", kShared, kTree, "every rank copies from the others' memory",
     always, all_gather_shared, work::all_gather_shared},

    {Kind::reduce_scatter, "direct", kMessages, kTree,
     "every rank receives all pieces of its part and adds them once", always, reduce_scatter_direct,
     work::reduce_scatter_direct},
    {Kind::reduce_scatter, "halving", kMessages, kTree,
     "sums are halved up the tree; each rank's part then goes to it", refuses_unaligned,
     reduce_scatter_halving, work::reduce_scatter_halving},
    {Kind::reduce_scatter, "tree", kMessages, kTree,
     "up the tree to rank 0, and each rank's part down a binomial tree", always,
     reduce_scatter_tree, work::reduce_scatter_tree},
    {Kind::reduce_scatter, "ring", kMessages, kAny,
     "sums travel around a ring: its own order of additions", always, reduce_scatter_ring,
     work::reduce_scatter_ring},
    {Kind::reduce_scatter, "shared", kShared, kTree,
     "every rank adds its part of all inputs in shared memory", always, reduce_scatter_shared,
     work::reduce_scatter_shared},

    {Kind::gather, "direct", kMessages, kTree, "every rank sends its part to the root", always,
     gather_direct, work::gather_direct},
    {Kind::gather, "tree", kMessages, kTree, "up a binomial tree, parts of subtrees together",
     always, gather_tree, work::gather_tree},
    {Kind::gather, "shared", kShared, kTree, "every rank copies its part into the root's memory",
     always, gather_shared, work::gather_shared},

    {Kind::scatter, "direct", kMessages, kTree, "the root sends every rank its part", always,
     scatter_direct, work::scatter_direct},
    {Kind::scatter, "tree", kMessages, kTree, "down a binomial tree, parts of subtrees together",
     always, scatter_tree, work::scatter_tree},
    {Kind::scatter, "shared", kShared, kTree, "every rank copies its part from the root's memory",
     always, scatter_shared, work::scatter_shared},

    {Kind::all_to_all, "direct", kMessages, kTree, "in step i to the i-th rank after", always,
     all_to_all_direct, work::all_to_all_direct},
    {Kind::all_to_all, "bruck", kMessages, kTree,
     "in the round of bit k blocks move 2^k ranks on: log2(n) rounds and peers", always,
     all_to_all_bruck, work::all_to_all_bruck},
    {Kind::all_to_all, "shared", kShared, kTree,
     "every rank copies its blocks from the others' memory", always, all_to_all_shared,
     work::all_to_all_shared},

    {Kind::barrier, "dissemination", kMessages, kTree,
     "in round k a message to the rank 2^k after: log2(n) rounds", always, barrier_dissemination,
     work::barrier_dissemination},
    {Kind::barrier, "shared", kShared, kTree, "one flag a rank, everybody awaits all", always,
     barrier_shared, work::barrier_shared},

    {Kind::send_receive, "direct", kMessages, kTree, "one message and its answer", always,
     send_receive_direct, work::send_receive_direct},
    {Kind::send_receive, "shared", kShared, kTree, "the receiver copies from the sender's memory",
     always, send_receive_shared, work::send_receive_shared},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

std::span<const Algorithm> algorithms(Kind kind) {
  const auto of_kind = [kind](const Algorithm& a) { return a.kind == kind; };
  const auto* first = std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms), of_kind);
  const auto* last = std::find_if_not(first, std::end(kAlgorithms), of_kind);
  return {first, last};
}

const Algorithm* find_algorithm(Kind kind, std::string_view name) {
  for (const Algorithm& algorithm : algorithms(kind)) {
    if (algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

}  // namespace lockstep::plan
