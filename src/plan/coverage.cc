#include "plan/coverage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

namespace lockstep::plan {
namespace {

/// "0", "n - 1", "11 n + 5 by 3".
std::string text_of(const Size& size) {
  std::string text;
  if (size.factor > 0) text = size.factor == 1 ? "n" : fmt::format("{} n", size.factor);
  if (text.empty()) {
    text = std::to_string(size.offset);
  } else if (size.offset != 0) {
    text += fmt::format(" {} {}", size.offset < 0 ? '-' : '+', std::abs(size.offset));
  }
  if (size.chunk != kWhole) text += fmt::format(" by {}", size.chunk);
  return text;
}

/// Which roots, out of so many, were tried with which sizes.
std::string roots_of(const Coverage::Sizes& sizes, int ranks) {
  std::vector<std::string> with_all;
  std::size_t fewest = SIZE_MAX;
  for (const auto& [size, roots] : sizes) {
    if (static_cast<int>(roots.size()) == ranks) with_all.push_back(text_of(size));
    fewest = std::min(fewest, roots.size());
  }
  if (with_all.size() == sizes.size()) return "every root";
  std::string some = fmt::format("{} roots", fewest);
  if (with_all.empty()) return some;
  return fmt::format("every root with {}, {} with the others", fmt::join(with_all, ", "), some);
}

}  // namespace

void Coverage::add(int ranks, const Case& one) {
  rooted_ = rooted_ || is_rooted(one.request.kind);
  by_ranks_[ranks][one.size].insert(one.request.root);
}

std::set<int> Coverage::ranks() const {
  std::set<int> numbers;
  for (const Layout& layout : layouts_) numbers.insert(layout.ranks());
  return numbers;
}

std::set<int> Coverage::hosts() const {
  std::set<int> numbers;
  for (const Layout& layout : layouts_) numbers.insert(layout.hosts());
  return numbers;
}

std::set<int> Coverage::replicas() const {
  std::set<int> numbers;
  for (const Layout& layout : layouts_) {
    for (int rank = 0; rank < layout.ranks(); ++rank) numbers.insert(layout.replicas(rank));
  }
  return numbers;
}

std::vector<Coverage::Line> Coverage::requests() const {
  std::vector<std::pair<std::set<int>, std::string>> groups;
  for (const auto& [ranks, sizes] : by_ranks_) {
    std::vector<std::string> names;
    for (const auto& [size, roots] : sizes) names.push_back(text_of(size));
    std::string text = fmt::format("{}", fmt::join(names, ", "));
    if (rooted_) text += "; " + roots_of(sizes, ranks);
    if (groups.empty() || groups.back().second != text) groups.emplace_back().second = text;
    groups.back().first.insert(ranks);
  }
  std::vector<Line> lines;
  for (const auto& [ranks, text] : groups) lines.push_back({plan::text_of(ranks), text});
  return lines;
}

std::string text_of(const std::set<int>& numbers) {
  std::vector<std::string> runs;
  for (auto first = numbers.begin(); first != numbers.end();) {
    auto last = first;
    while (std::next(last) != numbers.end() && *std::next(last) == *last + 1) ++last;
    runs.push_back(last == first ? std::to_string(*first) : fmt::format("{}-{}", *first, *last));
    first = std::next(last);
  }
  return fmt::format("{}", fmt::join(runs, ", "));
}

}  // namespace lockstep::plan
