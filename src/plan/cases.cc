#include "plan/cases.h"

#include <algorithm>

#include "plan/form.h"

namespace lockstep::plan {
namespace {

// Above the first number of ranks there are fewer sizes of several chunks; above the second fewer
// sizes at all, and most roots are tried with one of them only.
constexpr int kMany = 9;
constexpr int kVeryMany = 17;

std::vector<int> rank_numbers(Extent extent) {
  if (extent == Extent::brief) return {1, 2, 3, 4, 5, 6, 7, 8, 13, 16};
  std::vector<int> numbers;
  for (int n = 1; n <= kVeryMany; ++n) numbers.push_back(n);
  for (const int n : {24, 32, 33, 64}) numbers.push_back(n);
  return numbers;
}

/// The hosts of n ranks, in every way of interest; on one host first.
std::vector<std::vector<int>> hosts_for(int n) {
  std::vector<std::vector<int>> all;
  // Hosts that end before these ranks.
  const auto add = [&](const std::vector<int>& ends) {
    std::vector<int> hosts;
    for (std::size_t host = 0; host < ends.size(); ++host) {
      if (ends[host] <= static_cast<int>(hosts.size())) return;  // too few ranks
      hosts.resize(static_cast<std::size_t>(ends[host]), static_cast<int>(host));
    }
    if (std::find(all.begin(), all.end(), hosts) == all.end()) all.push_back(std::move(hosts));
  };
  add({n});
  add({n / 2, n});
  add({1, n});
  add({n - 1, n});
  add({n / 3, 2 * n / 3, n});
  add({n / 2, n / 2 + 1, n});
  std::vector<int> each;
  for (int rank = 0; rank < n; ++rank) each.push_back(rank + 1);
  add(each);
  return all;
}

/// Layouts of uneven ranks, on one host and on several.
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
      Layout({2, 2, 2, 2, 2, 2}, {7, 7, 7, 3, 3, 3}),
      Layout({1, 3, 2, 1, 2, 1}, {0, 1, 1, 1, 2, 2}),
      Layout({3, 1, 2, 1, 5}, {0, 0, 1, 1, 2}),
      Layout({1, 1, 1, 1, 1, 1, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}),
      Layout({3, 3, 3, 3, 3, 3, 3}, {0, 0, 0, 1, 1, 2, 2}),
      Layout({1, 1, 1, 1}, {0, 1, 0, 1}),
  };
}

std::vector<Size> sizes_for(Kind kind, int n, Extent extent) {
  const bool brief = extent == Extent::brief;
  if (kind == Kind::barrier) return {{0, 0, kWhole}};
  if (kind == Kind::all_to_all) {  // a block for each pair of ranks
    if (brief || n > kVeryMany) return {{0, 0, kWhole}, {0, 1, kWhole}, {0, 7, kWhole}};
    return {{0, 0, kWhole}, {0, 1, kWhole}, {0, 2, kWhole}, {0, 3, kWhole}, {0, 5, 1}, {0, 7, 3}};
  }
  if (brief) return {{0, 0, kWhole}, {0, 1, kWhole}, {1, 1, kWhole}, {11, 5, 3}};
  if (n > kVeryMany) {
    return {{0, 0, kWhole}, {0, 1, kWhole}, {1, -1, kWhole}, {1, 1, kWhole}, {3, 2, 1}};
  }
  std::vector<Size> sizes = {{0, 0, kWhole}, {0, 1, kWhole}, {1, -1, kWhole}, {1, 0, kWhole},
                             {1, 1, kWhole}, {1, 1, 1},      {3, 2, kWhole},  {11, 5, 3}};
  // Slices of whole cache lines, in chunks that do not divide them.
  if (n <= kMany) sizes.push_back({37, 9, 7});
  return sizes;
}

/// Counts per rank with the size as their measure: even, ragged with gaps, all on one rank.
std::vector<std::vector<std::uint64_t>> counts_for(int n, std::uint64_t size) {
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

std::vector<Rooted> roots_for(Kind kind, int n, Extent extent) {
  if (!is_rooted(kind)) return {{0, true}};
  const int all_up_to = extent == Extent::brief ? 5 : kVeryMany;
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

}  // namespace

bool is_rooted(Kind kind) noexcept {
  return kind == Kind::reduce || kind == Kind::broadcast || kind == Kind::gather ||
         kind == Kind::scatter || kind == Kind::send_receive;
}

std::vector<Layout> layouts_for(Extent extent) {
  std::vector<Layout> layouts;
  for (const int n : rank_numbers(extent)) {
    for (const int replicas : {1, 2, 3, 5}) {
      if (extent == Extent::brief && n > kMany && replicas > 1) continue;
      for (std::vector<int>& hosts : hosts_for(n)) {
        layouts.emplace_back(std::vector<int>(hosts.size(), replicas), std::move(hosts));
      }
    }
  }
  for (Layout& layout : odd_layouts()) layouts.push_back(std::move(layout));
  return layouts;
}

std::vector<Case> cases_for(Kind kind, int n, Extent extent) {
  std::vector<Case> cases;
  const std::vector<Size> sizes = sizes_for(kind, n, extent);
  for (const Size& size : sizes) {
    const std::uint64_t count = size.elements(n);
    for (const auto [root, all_sizes] : roots_for(kind, n, extent)) {
      if (!all_sizes && &size != &sizes.back()) continue;
      Request request{.kind = kind, .count = count, .root = root, .chunk = size.chunk};
      if (kind == Kind::send_receive) {
        for (const int to : {root, (root + 1) % n, (root + n / 2) % n}) {
          request.to = to;
          cases.push_back({size, request});
        }
      } else if (has_counts(kind)) {
        request.count = 0;
        for (auto& counts : counts_for(n, count)) {
          request.counts = std::move(counts);
          cases.push_back({size, request});
        }
      } else {
        cases.push_back({size, request});
      }
    }
  }
  return cases;
}

}  // namespace lockstep::plan
