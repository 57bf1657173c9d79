// The checker's memory: cells that remember their value and who touched them last, and the vector
// clocks that say whether two accesses are ordered.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/symbols.h"

namespace lockstep::plan {

/// clock[p]: how many events of rank p happened before.
using VectorClock = std::vector<std::uint32_t>;

inline void join(VectorClock& into, const VectorClock& other) {
  for (std::size_t i = 0; i < into.size(); ++i) {
    if (other[i] > into[i]) into[i] = other[i];
  }
}

/// One event: the clock-th of a rank.
struct Epoch {
  std::int32_t rank = -1;  // -1: none
  std::uint32_t clock = 0;

  friend bool operator==(const Epoch&, const Epoch&) = default;
  [[nodiscard]] bool before(const VectorClock& now) const noexcept {
    return rank < 0 || clock <= now[static_cast<std::size_t>(rank)];
  }
};

/// What an element is: the expression, and which element of the operation's inputs it is about.
struct Value {
  Symbol symbol = 0;
  std::uint32_t element = 0;

  friend bool operator==(const Value&, const Value&) = default;
};

/// Cells of all buffers of all ranks. Reads are kept as one epoch while one rank reads, else as a
/// clock per rank.
class MemoryModel {
 public:
  explicit MemoryModel(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  /// Adds a region of `count` cells and returns its first.
  std::size_t add(std::uint64_t count) {
    const std::size_t first = cells_.size();
    cells_.resize(first + count);
    return first;
  }
  [[nodiscard]] std::size_t size() const noexcept { return cells_.size(); }

  [[nodiscard]] const Value& value(std::size_t cell) const noexcept { return cells_[cell].value; }
  [[nodiscard]] int writer(std::size_t cell) const noexcept { return cells_[cell].written.rank; }

  /// Whether the last write is ordered before `now`.
  [[nodiscard]] bool may_read(std::size_t cell, const VectorClock& now) const noexcept {
    return cells_[cell].written.before(now);
  }
  void note_read(std::size_t cell, Epoch by);
  /// If `from` is the last read of its rank, it counts as `to` from now on.
  void move_read(std::size_t cell, Epoch from, Epoch to);
  /// Whether all accesses so far are ordered before `now`; else the rank of one that is not, as
  /// `culprit`.
  bool may_write(std::size_t cell, const VectorClock& now, int& culprit) const noexcept;
  void write(std::size_t cell, Value value, Epoch by);

 private:
  struct Cell {
    Value value;
    Epoch written;
    Epoch read;
    std::int32_t readers = -1;  // index into many_ in units of ranks_, or -1
  };

  std::size_t ranks_;
  std::vector<Cell> cells_;
  std::vector<std::uint32_t> many_;
  std::vector<std::int32_t> free_;
};

}  // namespace lockstep::plan
