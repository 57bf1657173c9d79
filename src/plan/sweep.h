// The sweep: every algorithm checked over many numbers of ranks, layouts, sizes, roots,
// accumulators and aliasings. `lockstep plans` prints its rows; the tests run the short one.
//
//   for (const SweepRow& row : sweep({.extent = Extent::complete})) print(row);
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/cases.h"
#include "plan/check.h"
#include "plan/coverage.h"

namespace lockstep::plan {

struct SweepRow {
  const Algorithm* algorithm = nullptr;
  Order proven = Order::fixed_tree;  // of all cases together
  Coverage ran = {};
  std::uint64_t cases = 0;
  std::uint64_t refused = 0;  // layouts or requests the algorithm does not serve
  std::uint64_t alike = 0;    // layouts not run: they have the plans of one that is
  std::uint64_t failures = 0;
  std::string first_failure = {};  // the case and the problem

  /// No failure, and the order is the declared one.
  [[nodiscard]] bool right() const {
    return failures == 0 && (algorithm->order == Order::any || proven == Order::fixed_tree);
  }
};

struct SweepOptions {
  Extent extent = Extent::complete;
  /// Called after each algorithm and layout with the row so far; may be empty.
  std::function<void(const SweepRow&)> progress = {};
};

/// One row per algorithm, in the order of algorithms().
std::vector<SweepRow> sweep(const SweepOptions& options = {});

/// One algorithm.
SweepRow sweep(const Algorithm& algorithm, const SweepOptions& options = {});

/// "all_reduce direct, ranks 3, replicas 1 2 1, count 11, root 0, wide, in place, chunk 3".
std::string describe(const Algorithm& algorithm, const Request& request, const Layout& layout,
                     Aliasing aliasing);

}  // namespace lockstep::plan
