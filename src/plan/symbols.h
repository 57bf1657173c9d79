// Symbols: sums as expressions instead of numbers, for the checker. Equal expressions have equal
// ids, so comparing two sums of any size is comparing two integers.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "plan/tree.h"

namespace lockstep::plan {

/// An expression over the replicas' values of one element; 0 is "never written".
using Symbol = std::uint32_t;

class Symbols {
 public:
  explicit Symbols(int leaves);

  [[nodiscard]] Symbol leaf(int replica) const noexcept { return static_cast<Symbol>(replica) + 1; }
  Symbol merge(Symbol left, Symbol right);
  /// The completed sum (divided, for a mean).
  Symbol finish(Symbol sum);
  /// The sum of a node as the fixed tree associates it.
  Symbol fixed_tree(Node node);

  [[nodiscard]] bool is_leaf(Symbol s) const noexcept {
    return s != 0 && nodes_[s].right == 0 && !is_finished(s);
  }
  [[nodiscard]] bool is_finished(Symbol s) const noexcept { return nodes_[s].finished; }
  /// Whether a finished sum has every replica exactly once.
  bool is_complete(Symbol finished);
  /// "((0+1)+2)", cut when long.
  [[nodiscard]] std::string text(Symbol s) const;

 private:
  struct Entry {
    Symbol left = 0;   // of a finished sum: the sum
    Symbol right = 0;  // 0: a leaf or a finished sum
    bool finished = false;
  };

  Symbol intern(std::uint64_t key, Entry entry);
  void count_leaves(Symbol s, std::vector<int>& seen) const;
  void write(Symbol s, std::string& out) const;

  int leaves_;
  std::vector<Entry> nodes_;
  std::unordered_map<std::uint64_t, Symbol> ids_;
  std::unordered_map<Symbol, bool> complete_;
};

}  // namespace lockstep::plan
