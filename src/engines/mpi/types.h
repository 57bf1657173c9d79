// MPI's names of our element types and ops.
//
// The 16-bit floating types have none for reductions: those are made in float32 (transfer.h). Here
// they are bits to move. Two kinds of ops are our own: min and max of floating types, since MPI's
// may lose a NaN, and sums of small integers, since Open MPI's saturate where its processor has
// AVX.
#pragma once

#include <mpi.h>

#include <array>

#include "lockstep/dtype.h"
#include "lockstep/op.h"

namespace lockstep::mpi {

MPI_Datatype datatype_of(DType type) noexcept;

using OpTable = std::array<std::array<MPI_Op, kDTypeCount>, kOpCount>;

/// The ops of one process; made once, after MPI is initialised, and left to MPI_Finalize.
class Ops {
 public:
  Ops();
  /// Mean is a sum: dividing is the caller's.
  [[nodiscard]] MPI_Op of(Op op, DType type) const noexcept;

 private:
  /// MPI_OP_NULL where MPI's own will do.
  OpTable own_;
};

}  // namespace lockstep::mpi
