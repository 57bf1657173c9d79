// Every rank of the job runs every test, in the same order, each with a session of its own.
#pragma once

#include "lockstep/coll/mpi.h"
#include "tests/coll/fixtures.h"

namespace lockstep::coll {

/// A rank that fails a test and goes on leaves the others waiting: not for long.
inline SessionOptions impatient() {
  SessionOptions options;
  options.progress_timeout = std::chrono::seconds(30);
  return options;
}

inline Session make_group(SessionOptions options = impatient()) {
  return mpi_session({.options = std::move(options)});
}

inline std::vector<std::int32_t> ramp(int rank, std::size_t count) {
  std::vector<std::int32_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = rank * 1000 + static_cast<std::int32_t>(i);
  return values;
}

}  // namespace lockstep::coll
