// What can be said about plans without running them: every index, region, rank and program is in
// range. The symbolic machine relies on it.
#pragma once

#include <string>
#include <vector>

#include "plan/check.h"

namespace lockstep::plan {

/// Elements of each replica's input of a rank (0 for indices it does not have).
std::uint64_t input_count(const Request& request, const Layout& layout, int rank);
/// How many inputs a rank has: its replicas where they matter, else one.
int input_number(const Request& request, const Layout& layout, int rank);
std::uint64_t output_count(const Request& request, const Layout& layout, int rank);

/// Whether the request has a count per rank.
bool has_counts(Kind kind) noexcept;
/// Elements of the request: count, or the sum of counts.
std::uint64_t element_count(const Request& request);

/// Whether the collective adds.
bool is_reduction(Kind kind) noexcept;

/// Whether output and input may be the same memory.
bool allows_in_place(Kind kind) noexcept;

/// "instruction 3 (send 8 elements to rank 1)".
std::string describe(const Plan& plan, std::size_t index);

/// Empty, or what is wrong with the request or with which instruction of which rank.
std::string find_malformed(const Request& request, const Layout& layout,
                           const std::vector<Plan>& plans, Aliasing aliasing);

/// Empty, or the first use of shared memory by a plan that may only use messages.
std::string find_shared_use(const std::vector<Plan>& plans);

}  // namespace lockstep::plan
