// Report: what `lockstep bench` prints, in nccl-tests' columns, and writes as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure.h"

namespace lockstep::tool {

/// One line of the table: a size, measured out of place, in place or both.
struct Row {
  Trial trial;
  std::optional<Timing> out_of_place;
  std::optional<Timing> in_place;

  [[nodiscard]] std::uint64_t wrong() const;
};

/// The machine and the columns; printed before the first row of a collective.
std::string head(const Trial& trial);
std::string line(const Row& row);
/// The last line: how many elements were wrong.
std::string summary(const std::vector<Row>& rows);

/// All figures of all rows; throws if the file cannot be written.
void write_json(const std::string& path, const std::vector<Row>& rows);

}  // namespace lockstep::tool
