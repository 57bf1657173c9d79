// The machine's own speed at what an all-reduce of two ranks must do at least.
#pragma once

#include <cstddef>

namespace lockstep::bench {

/// x[i] = y[i] = x[i] + y[i]: reads both, writes both.
void add_both(float* x, float* y, std::size_t count);

}  // namespace lockstep::bench
