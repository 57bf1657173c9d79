#include "plan/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "plan/form.h"

namespace lockstep::plan {
namespace {

bool contains(const std::vector<Layout>& layouts, const Layout& layout) {
  return std::find(layouts.begin(), layouts.end(), layout) != layouts.end();
}

/// The layout on one host; and with one replica a rank where replicas do not matter.
Layout plainest(Kind kind, const Layout& layout) {
  std::vector<int> replicas;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    replicas.push_back(is_reduction(kind) ? layout.replicas(rank) : 1);
  }
  return Layout(replicas);
}

/// Whether the algorithm serves both layouts alike, told by one request of several chunks.
bool same_plans(const Algorithm& algorithm, const Layout& one, const Layout& other) {
  const auto n = static_cast<std::uint64_t>(one.ranks());
  Request request{
      .kind = algorithm.kind, .count = 3 * n + 2, .root = one.ranks() / 2, .chunk = n + 1};
  for (std::uint64_t rank = 0; rank < n; ++rank) request.counts.push_back(rank % 4);
  if (!algorithm.refuses(request, one).empty()) return false;
  if (!algorithm.refuses(request, other).empty()) return false;
  return make_all(algorithm, request, one) == make_all(algorithm, request, other);
}

void check_case(const Algorithm& algorithm, const Request& request, const Layout& layout,
                Aliasing aliasing, SweepRow& row) {
  const Verdict verdict =
      check(algorithm, request, layout,
            {.aliasing = aliasing, .repetitions = 3, .seed = static_cast<unsigned>(row.cases)});
  ++row.cases;
  if (verdict.order == Order::any) row.proven = Order::any;
  std::string problem = verdict.problem;
  if (problem.empty() && algorithm.order == Order::fixed_tree && verdict.order == Order::any) {
    problem = "a sum is not associated as the fixed tree";
  }
  if (problem.empty()) return;
  if (++row.failures == 1) {
    row.first_failure =
        fmt::format("{}: {}", describe(algorithm, request, layout, aliasing), problem);
  }
}

void sweep_layout(const Algorithm& algorithm, const Layout& layout, Extent extent, SweepRow& row) {
  const std::uint64_t before = row.cases;
  for (Case& one : cases_for(algorithm.kind, layout.ranks(), extent)) {
    Request& request = one.request;
    if (!algorithm.refuses(request, layout).empty()) {
      ++row.refused;
      continue;
    }
    row.ran.add(layout.ranks(), one);
    for (const Accumulator accumulator : {Accumulator::same, Accumulator::wide}) {
      if (accumulator == Accumulator::wide && !is_reduction(algorithm.kind)) continue;
      request.accumulator = accumulator;
      check_case(algorithm, request, layout, Aliasing::separate, row);
      if (!allows_in_place(algorithm.kind)) continue;
      check_case(algorithm, request, layout, Aliasing::in_place, row);
    }
  }
  if (row.cases > before) row.ran.add(layout);
}

}  // namespace

std::string describe(const Algorithm& algorithm, const Request& request, const Layout& layout,
                     Aliasing aliasing) {
  std::vector<int> replicas;
  std::vector<int> hosts;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    replicas.push_back(layout.replicas(rank));
    hosts.push_back(layout.host(rank));
  }
  return fmt::format(
      "{} {}, replicas {}, hosts {}, count {}, counts {}, root {}, to {}, {}, {}, chunk {}",
      to_string(algorithm.kind), algorithm.name, fmt::join(replicas, " "), fmt::join(hosts, " "),
      request.count, fmt::join(request.counts, " "), request.root, request.to,
      request.accumulator == Accumulator::wide ? "wide" : "same",
      aliasing == Aliasing::in_place ? "in place" : "separate", request.chunk);
}

SweepRow sweep(const Algorithm& algorithm, const SweepOptions& options) {
  SweepRow row{.algorithm = &algorithm};
  for (const Layout& layout : layouts_for(options.extent)) {
    const Layout plain = plainest(algorithm.kind, layout);
    if (contains(row.ran.layouts(), plain) && same_plans(algorithm, layout, plain)) {
      ++row.alike;
      row.ran.add(layout);
      continue;
    }
    sweep_layout(algorithm, layout, options.extent, row);
    if (options.progress) options.progress(row);
  }
  return row;
}

std::vector<SweepRow> sweep(const SweepOptions& options) {
  std::vector<SweepRow> rows;
  for (const Algorithm& algorithm : algorithms()) rows.push_back(sweep(algorithm, options));
  return rows;
}

}  // namespace lockstep::plan
