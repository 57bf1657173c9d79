// libtorch's functions take no per-replica value either.
#include "lockstep/strategy.h"

// clang-format off
#include <ATen/ops/relu.h>  // after our headers, which begin with what clang needs first
// clang-format on

using namespace lockstep;

#ifdef MISTAKE
Tensor positive(const PerReplica<Tensor>& value) { return at::relu(value); }
#else
Tensor positive(const Mirrored<Tensor>& value) { return at::relu(value); }
#endif
