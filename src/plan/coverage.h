// Coverage: what a sweep of one algorithm has really run, and the same in words. Nothing in it is
// said of cases that the algorithm refused.
//
//   Coverage ran;
//   ran.add(layout);
//   ran.add(layout.ranks(), one);
//   print(text_of(ran.ranks()));             // "1-17, 24, 32-33, 64"
//   for (const auto& [ranks, text] : ran.requests()) print(ranks, text);
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "plan/cases.h"

namespace lockstep::plan {

class Coverage {
 public:
  /// A layout that is proven: cases ran on it, or its plans are those of one where they did.
  void add(const Layout& layout) { layouts_.push_back(layout); }
  /// A case that ran with so many ranks.
  void add(int ranks, const Case& one);

  [[nodiscard]] const std::vector<Layout>& layouts() const noexcept { return layouts_; }
  [[nodiscard]] std::set<int> ranks() const;
  [[nodiscard]] std::set<int> hosts() const;     // of a layout
  [[nodiscard]] std::set<int> replicas() const;  // of a rank

  /// With so many ranks: each size, and the roots it was tried with (0 if there are no roots).
  using Sizes = std::map<Size, std::set<int>>;
  [[nodiscard]] const std::map<int, Sizes>& by_ranks() const noexcept { return by_ranks_; }

  /// Sizes and roots in words, numbers of ranks with the same words together.
  struct Line {
    std::string ranks;  // "1-9"
    std::string text;   // "0, 1, n + 1, 11 n + 5 by 3; every root"
    friend auto operator<=>(const Line&, const Line&) = default;
  };
  [[nodiscard]] std::vector<Line> requests() const;

 private:
  std::vector<Layout> layouts_;
  std::map<int, Sizes> by_ranks_;
  bool rooted_ = false;
};

/// "1-17, 24, 32-33, 64".
std::string text_of(const std::set<int>& numbers);

}  // namespace lockstep::plan
