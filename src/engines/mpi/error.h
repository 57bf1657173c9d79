// What a call of MPI returned, as a Status.
#pragma once

#include <mpi.h>

#include "base/status.h"

namespace lockstep::mpi {

/// Ok for MPI_SUCCESS; else SystemError with the call's name and MPI's own words.
Status to_status(int result, const char* call);

/// Throws unless the call succeeded.
inline void check(int result, const char* call) {
  if (result != MPI_SUCCESS) raise(to_status(result, call));
}

}  // namespace lockstep::mpi
