// The rows of the comparison: what is reduced where, who takes part, and what is required of us.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/peers/arena.h"
#include "bench/peers/order.h"

namespace lockstep::bench::peers {

/// Somebody, and what they are given to do.
struct Entry {
  std::string contestant;
  Job job;

  /// "ompi" of "ompi_ring": the best of a family is what we are compared with.
  [[nodiscard]] std::string family() const;
  /// As tables show it.
  [[nodiscard]] std::string label() const;
};

/// Our speed / the family's speed must be at least this.
struct Requirement {
  std::string target;
  std::string family;
  double required = 1;
};

struct Row {
  std::string name;
  Place place = Place::shared_memory;
  Entry ours;
  std::vector<Entry> others;
  std::vector<Requirement> requirements;
  /// Many calls at a stretch, buffers untouched between them.
  bool small = false;
  /// The network is shaped to 1 Gbit/s, and "line" is a contestant that needs no time but the
  /// line's.
  bool shaped = false;
};

inline constexpr const char* kLine = "line";

/// In the order they are measured. `ours`: the contestant that takes our place, or empty.
std::vector<Row> all_rows(const std::string& ours);

/// Bytes that one call reduces on a rank.
std::size_t bytes_of(const Job& job);

}  // namespace lockstep::bench::peers
