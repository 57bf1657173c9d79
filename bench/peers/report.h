// What the comparison prints and writes down.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/peers/duel.h"

namespace lockstep::bench::peers {

/// The row's table on stdout.
void print_row(const Row& row, const RowResult& result);

/// The row's targets on stdout, one line each; remembers in `targets` whether they were met.
/// `verdict`: fewer pairs than a measurement needs make a target short.
void print_targets(const Row& row, const RowResult& result, Targets& targets, bool verdict);

nlohmann::json json_of(const Row& row, const RowResult& result);

}  // namespace lockstep::bench::peers
