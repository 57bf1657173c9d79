// Moved: how far an operation has come on one rank, in bytes that go between this rank and others.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::coll {

struct Moved {
  std::uint64_t done = 0;
  std::uint64_t total = 0;  // 0: nothing is to be moved, or it is not known
};

/// "3.2 of 8.0 MiB"
std::string to_text(const Moved& moved);

}  // namespace lockstep::coll
