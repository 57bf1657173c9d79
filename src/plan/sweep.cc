#include "plan/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "plan/form.h"

namespace lockstep::plan {
namespace {

// Every root is checked everywhere. Above this many ranks, with several replicas a rank, most roots
// are checked with one size only; above the second number those of every layout, and with fewer
// sizes.
constexpr int kMany = 9;
constexpr int kVeryMany = 17;

std::vector<int> rank_numbers(Extent extent) {
  if (extent == Extent::brief) return {1, 2, 3, 4, 5, 6, 7, 8, 13, 16};
  std::vector<int> numbers;
  for (int n = 1; n <= 17; ++n) numbers.push_back(n);
  for (const int n : {24, 32, 33, 64}) numbers.push_back(n);
  return numbers;
}

std::string text_of(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += text.empty() ? "" : ", ";
    text += last > i ? fmt::format("{}-{}", numbers[i], numbers[last]) : std::to_string(numbers[i]);
    i = last + 1;
  }
  return text;
}

/// Layouts of uneven ranks, and of ranks on several hosts.
std::vector<Layout> odd_layouts() {
  return {
      Layout({1, 2}),
      Layout({2, 1}),
      Layout({3, 1, 2}),
      Layout({2, 2, 1}),
      Layout({1, 1, 2, 4}),
      Layout({4, 1, 1, 1}),
      Layout({5, 2, 7, 1}),
      Layout({1, 5, 1, 5, 1}),
      Layout({2, 2, 2, 1, 1, 1, 1}),
      Layout({1, 1, 1, 1}, {0, 0, 1, 1}),
      Layout({1, 1, 1, 1, 1, 1}, {0, 0, 0, 1, 1, 1}),
      Layout({2, 2, 2, 2, 2, 2}, {7, 7, 7, 3, 3, 3}),
      Layout({1, 1, 1, 1}, {0, 0, 0, 1}),
      Layout({1, 3, 2, 1, 2, 1}, {0, 1, 1, 1, 2, 2}),
      Layout({3, 1, 2, 1, 5}, {0, 0, 1, 1, 2}),
      Layout({1, 1, 1, 1, 1, 1, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}),
      Layout({3, 3, 3, 3, 3, 3, 3}, {0, 0, 0, 1, 1, 2, 2}),
      Layout({1, 1, 1, 1}, {0, 1, 0, 1}),
  };
}

std::vector<Layout> layouts_for(Kind kind, Extent extent) {
  std::vector<Layout> layouts;
  for (const int n : rank_numbers(extent)) {
    layouts.push_back(Layout::uniform(n));
    if (!is_reduction(kind)) continue;
    for (const int replicas : {2, 3, 5}) {
      if (extent == Extent::brief && n > kMany) continue;
      layouts.push_back(Layout::uniform(n, replicas));
    }
  }
  for (const Layout& layout : odd_layouts()) layouts.push_back(layout);
  return layouts;
}

struct Size {
  std::uint64_t count;
  std::uint64_t chunk;
};

std::vector<Size> sizes_for(std::uint64_t n, Extent extent) {
  constexpr std::uint64_t kWhole = std::uint64_t{1} << 14;
  if (extent == Extent::brief) {
    return {{0, kWhole}, {1, kWhole}, {n + 1, kWhole}, {11 * n + 5, 3}};
  }
  if (n > kVeryMany) {
    return {{0, kWhole}, {1, kWhole}, {n - 1, kWhole}, {n + 1, kWhole}, {3 * n + 2, 1}};
  }
  std::vector<Size> sizes = {{0, kWhole},     {1, kWhole}, {n - 1, kWhole},     {n, kWhole},
                             {n + 1, kWhole}, {n + 1, 1},  {3 * n + 2, kWhole}, {11 * n + 5, 3}};
  // Slices of whole cache lines, in chunks that do not divide them.
  if (n <= kMany) sizes.push_back({37 * n + 9, 7});
  return sizes;
}

/// Counts per rank with the size as their measure: even, ragged with gaps, all on one rank.
std::vector<std::vector<std::uint64_t>> counts_for(int n, std::uint64_t size) {
  std::vector<std::vector<std::uint64_t>> all;
  const auto ranks = static_cast<std::size_t>(n);
  std::vector<std::uint64_t> even(ranks, size / ranks);
  std::vector<std::uint64_t> ragged(ranks);
  std::vector<std::uint64_t> lonely(ranks);
  for (std::size_t r = 0; r < ranks; ++r) ragged[r] = r % 3 == 1 ? 0 : (size / ranks + r) % 7;
  lonely[ranks / 2] = size;
  return {even, ragged, lonely};
}

/// Each root, and whether all sizes are due or only the most telling one, the last.
struct Rooted {
  int root;
  bool all_sizes;
};

std::vector<Rooted> roots_for(Kind kind, const Layout& layout, Extent extent) {
  const int n = layout.ranks();
  const bool rooted = kind == Kind::reduce || kind == Kind::broadcast || kind == Kind::gather ||
                      kind == Kind::scatter || kind == Kind::send_receive;
  if (!rooted || n == 1) return {{0, true}};
  const int all_up_to = extent == Extent::brief ? 5 : layout.replicas() > n ? kMany : kVeryMany;
  std::vector<Rooted> roots;
  for (int root = 0; root < n; ++root) {
    const bool telling = root <= 1 || root == n / 2 || root == n - 1;
    if (telling || n <= all_up_to) {
      roots.push_back({root, true});
    } else if (extent == Extent::complete) {
      roots.push_back({root, false});
    }
  }
  return roots;
}

/// All requests of a kind on a layout.
std::vector<Request> requests_for(Kind kind, const Layout& layout, Extent extent) {
  std::vector<Request> requests;
  const int n = layout.ranks();
  const std::vector<Size> sizes = sizes_for(static_cast<std::uint64_t>(n), extent);
  for (const Size& size : sizes) {
    if (kind == Kind::barrier && size.count > 0) continue;
    // The block of an all_to_all is per pair of ranks.
    const std::uint64_t count = kind == Kind::all_to_all ? size.count % 8 : size.count;
    for (const auto [root, all_sizes] : roots_for(kind, layout, extent)) {
      if (!all_sizes && &size != &sizes.back()) continue;
      Request request{.kind = kind, .count = count, .root = root, .chunk = size.chunk};
      if (kind == Kind::send_receive) {
        for (const int to : {root, (root + 1) % n, (root + n / 2) % n}) {
          request.to = to;
          requests.push_back(request);
        }
      } else if (has_counts(kind)) {
        request.count = 0;
        for (auto& counts : counts_for(n, size.count)) {
          request.counts = std::move(counts);
          requests.push_back(request);
        }
      } else {
        requests.push_back(request);
      }
    }
  }
  return requests;
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
  SweepRow row{.algorithm = &algorithm, .ranks = text_of(rank_numbers(options.extent))};
  for (const Layout& layout : layouts_for(algorithm.kind, options.extent)) {
    for (Request& request : requests_for(algorithm.kind, layout, options.extent)) {
      if (!algorithm.refuses(request, layout).empty()) {
        ++row.refused;
        continue;
      }
      for (const Accumulator accumulator : {Accumulator::same, Accumulator::wide}) {
        if (accumulator == Accumulator::wide && !is_reduction(algorithm.kind)) continue;
        request.accumulator = accumulator;
        check_case(algorithm, request, layout, Aliasing::separate, row);
        if (!allows_in_place(algorithm.kind)) continue;
        check_case(algorithm, request, layout, Aliasing::in_place, row);
      }
    }
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
