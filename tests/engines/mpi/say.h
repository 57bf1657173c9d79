// A rank's line about what it met, for run_job.cmake to look at.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "lockstep/error.h"

namespace lockstep {

inline void say(int rank, const Error& error) {
  const std::string line =
      fmt::format("rank {}: {}: {} (culprits {})\n", rank, to_string(error.kind()), error.what(),
                  fmt::join(error.culprits(), ", "));
  std::fputs(line.c_str(), stderr);
}

}  // namespace lockstep
