// What drivers of benchmarks with rows share: which rows, and a ratio as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/support/paired.h"

namespace lockstep::bench {

inline nlohmann::json to_json(const PairedResult& ratio) {
  return {{"median", ratio.median},
          {"lower_quartile", ratio.lower_quartile},
          {"upper_quartile", ratio.upper_quartile},
          {"pairs", ratio.pairs},
          {"dropped", ratio.dropped},
          {"cores", to_string(ratio.distance)}};
}

/// The rows whose name matches; throws if there is none.
template <class Row>
std::vector<Row> rows_matching(std::vector<Row> rows, const std::string& only) {
  const std::regex wanted(only);
  std::erase_if(rows, [&](const Row& row) { return !std::regex_search(row.name, wanted); });
  if (rows.empty()) throw std::runtime_error("no row matches --only " + only);
  return rows;
}

}  // namespace lockstep::bench
