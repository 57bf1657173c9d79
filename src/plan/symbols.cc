#include "plan/symbols.h"

#include <algorithm>

namespace lockstep::plan {
namespace {

constexpr std::size_t kLongest = 200;  // characters of an expression in a message

}  // namespace

Symbols::Symbols(int leaves) : leaves_(leaves), nodes_(static_cast<std::size_t>(leaves) + 1) {}

Symbol Symbols::intern(std::uint64_t key, Entry entry) {
  const auto [found, fresh] = ids_.try_emplace(key, static_cast<Symbol>(nodes_.size()));
  if (fresh) nodes_.push_back(entry);
  return found->second;
}

Symbol Symbols::merge(Symbol left, Symbol right) {
  return intern(std::uint64_t{left} << 32 | right, {.left = left, .right = right});
}

Symbol Symbols::finish(Symbol sum) {
  return intern(std::uint64_t{sum} << 32, {.left = sum, .finished = true});
}

Symbol Symbols::fixed_tree(Node node) {
  if (node.size() == 1) return leaf(node.lo);
  const Symbol low = fixed_tree(left(node));
  return merge(low, fixed_tree(right(node)));
}

void Symbols::count_leaves(Symbol s, std::vector<int>& seen) const {
  const Entry& entry = nodes_[s];
  if (entry.right != 0) {
    count_leaves(entry.left, seen);
    count_leaves(entry.right, seen);
  } else if (entry.left == 0 && s != 0) {
    ++seen[s - 1];
  }
}

bool Symbols::is_complete(Symbol finished) {
  if (!is_finished(finished)) return false;
  const auto [found, fresh] = complete_.try_emplace(finished, false);
  if (fresh) {
    std::vector<int> seen(static_cast<std::size_t>(leaves_));
    count_leaves(nodes_[finished].left, seen);
    found->second = std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; });
  }
  return found->second;
}

void Symbols::write(Symbol s, std::string& out) const {
  const Entry& entry = nodes_[s];
  if (out.size() > kLongest) return;
  if (s == 0) {
    out += "nothing";
  } else if (entry.finished) {
    out += "finished ";
    write(entry.left, out);
  } else if (entry.right != 0) {
    out += '(';
    write(entry.left, out);
    out += '+';
    write(entry.right, out);
    out += ')';
  } else {
    out += std::to_string(s - 1);
  }
}

std::string Symbols::text(Symbol s) const {
  std::string out;
  write(s, out);
  if (out.size() > kLongest) out.replace(kLongest, std::string::npos, "...");
  return out;
}

}  // namespace lockstep::plan
