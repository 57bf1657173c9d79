// The functions that make plans, one per algorithm; algorithm.cc lists them. Each is pure.
#pragma once

#include <string>

#include "plan/plan.h"

namespace lockstep::plan {

/// Largest number of elements a rank stages in its slot (all_reduce "slots").
inline constexpr std::uint64_t kSlotElements = 2048;

// shared_reduce.cc
Plan all_reduce_one_pass(const Request& request, const Layout& layout, int rank);
Plan all_reduce_slots(const Request& request, const Layout& layout, int rank);
Plan reduce_one_pass(const Request& request, const Layout& layout, int rank);
Plan reduce_scatter_shared(const Request& request, const Layout& layout, int rank);
std::string refuses_slots(const Request& request, const Layout& layout);
std::uint64_t slots_slot_elements(const Request& request, const Layout& layout);

// staged_reduce.cc
Plan all_reduce_staged(const Request& request, const Layout& layout, int rank);
std::string refuses_staged(const Request& request, const Layout& layout);
std::uint64_t staged_slot_elements(const Request& request, const Layout& layout);

// shared_move.cc
Plan broadcast_shared(const Request& request, const Layout& layout, int rank);
Plan all_gather_shared(const Request& request, const Layout& layout, int rank);
Plan gather_shared(const Request& request, const Layout& layout, int rank);
Plan scatter_shared(const Request& request, const Layout& layout, int rank);
Plan all_to_all_shared(const Request& request, const Layout& layout, int rank);
Plan barrier_shared(const Request& request, const Layout& layout, int rank);
Plan send_receive_shared(const Request& request, const Layout& layout, int rank);

// direct_reduce.cc
Plan all_reduce_direct(const Request& request, const Layout& layout, int rank);
Plan reduce_direct(const Request& request, const Layout& layout, int rank);
Plan reduce_scatter_direct(const Request& request, const Layout& layout, int rank);

// direct_move.cc
Plan all_gather_direct(const Request& request, const Layout& layout, int rank);
Plan gather_direct(const Request& request, const Layout& layout, int rank);
Plan scatter_direct(const Request& request, const Layout& layout, int rank);
Plan all_to_all_direct(const Request& request, const Layout& layout, int rank);
Plan barrier_dissemination(const Request& request, const Layout& layout, int rank);
Plan send_receive_direct(const Request& request, const Layout& layout, int rank);

// broadcast.cc
Plan broadcast_tree(const Request& request, const Layout& layout, int rank);
Plan broadcast_scatter_gather(const Request& request, const Layout& layout, int rank);

// tree_reduce.cc
Plan all_reduce_tree(const Request& request, const Layout& layout, int rank);
Plan reduce_tree(const Request& request, const Layout& layout, int rank);
Plan reduce_scatter_tree(const Request& request, const Layout& layout, int rank);

// tree_move.cc
Plan gather_tree(const Request& request, const Layout& layout, int rank);
Plan scatter_tree(const Request& request, const Layout& layout, int rank);

// bruck.cc
Plan all_gather_bruck(const Request& request, const Layout& layout, int rank);
Plan all_to_all_bruck(const Request& request, const Layout& layout, int rank);

// doubling.cc, halving.cc: only where each rank's replicas are one subtree.
Plan all_reduce_doubling(const Request& request, const Layout& layout, int rank);
Plan all_reduce_halving(const Request& request, const Layout& layout, int rank);
Plan reduce_scatter_halving(const Request& request, const Layout& layout, int rank);
std::string refuses_unaligned(const Request& request, const Layout& layout);

// ring.cc
Plan all_reduce_ring(const Request& request, const Layout& layout, int rank);
Plan reduce_scatter_ring(const Request& request, const Layout& layout, int rank);
Plan all_gather_ring(const Request& request, const Layout& layout, int rank);

// hierarchical.cc
Plan all_reduce_hierarchical(const Request& request, const Layout& layout, int rank);
std::string refuses_scattered_hosts(const Request& request, const Layout& layout);

}  // namespace lockstep::plan
