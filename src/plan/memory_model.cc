#include "plan/memory_model.h"

#include <algorithm>

namespace lockstep::plan {

void MemoryModel::note_read(std::size_t index, Epoch by) {
  Cell& cell = cells_[index];
  if (cell.readers < 0) {
    if (cell.read.rank < 0 || cell.read.rank == by.rank) {
      cell.read = by;
      return;
    }
    if (free_.empty()) {
      free_.push_back(static_cast<std::int32_t>(many_.size() / ranks_));
      many_.resize(many_.size() + ranks_);
    }
    cell.readers = free_.back();
    free_.pop_back();
    const auto first = many_.begin() + static_cast<std::ptrdiff_t>(cell.readers) *
                                           static_cast<std::ptrdiff_t>(ranks_);
    std::fill_n(first, ranks_, 0);
    *(first + cell.read.rank) = cell.read.clock;
  }
  many_[static_cast<std::size_t>(cell.readers) * ranks_ + static_cast<std::size_t>(by.rank)] =
      by.clock;
}

void MemoryModel::move_read(std::size_t index, Epoch from, Epoch to) {
  Cell& cell = cells_[index];
  if (cell.readers < 0) {
    if (cell.read == from) cell.read = to;
    return;
  }
  const std::size_t first = static_cast<std::size_t>(cell.readers) * ranks_;
  std::uint32_t& clock = many_[first + static_cast<std::size_t>(from.rank)];
  if (clock != from.clock) return;
  clock = 0;
  many_[first + static_cast<std::size_t>(to.rank)] = to.clock;
}

bool MemoryModel::may_write(std::size_t index, const VectorClock& now,
                            int& culprit) const noexcept {
  const Cell& cell = cells_[index];
  if (!cell.written.before(now)) {
    culprit = cell.written.rank;
    return false;
  }
  if (cell.readers < 0) {
    culprit = cell.read.rank;
    return cell.read.before(now);
  }
  const std::size_t first = static_cast<std::size_t>(cell.readers) * ranks_;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    if (many_[first + rank] > now[rank]) {
      culprit = static_cast<int>(rank);
      return false;
    }
  }
  return true;
}

void MemoryModel::write(std::size_t index, Value value, Epoch by) {
  Cell& cell = cells_[index];
  cell.value = value;
  cell.written = by;
  cell.read = {};
  if (cell.readers >= 0) free_.push_back(cell.readers);
  cell.readers = -1;
}

}  // namespace lockstep::plan
