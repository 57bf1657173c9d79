// Exercise: every collective over every element type and several sizes, as a list of digests of
// what came out. Equal lists, equal bits: run it over threads and over processes and compare.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/coll.h"

namespace lockstep::processes {

enum class Buffers : std::uint8_t { own, of_session };

/// One line for each result of this rank: what it is, and its digest.
std::vector<std::string> exercise(coll::Session& group, Buffers buffers);

}  // namespace lockstep::processes
