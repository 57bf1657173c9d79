// MPI as the engine of a session: for programs that mpirun, mpiexec or srun has started on a
// machine with a tuned MPI. Link lockstep::mpi.
//
//   Session group = mpi_session();                       // every rank of MPI_COMM_WORLD
//   group.all_reduce(Op::mean, std::span(gradient));     // MPI_Iallreduce
//
// join() gives the same session if JoinOptions::options.engine is Engine::mpi, or LOCKSTEP_ENGINE
// is "mpi" for join() without options. A program that is not linked with lockstep::mpi gets one
// warning and the host's own collectives there.
//
// Initialises MPI on first use (MPI_THREAD_SERIALIZED) unless the program has, with that level or
// more; what it has initialised it finalises when the process exits. The program's own
// communicators and error handlers are left alone.
//
// What ranks ask for is compared before each operation, by one more small reduction: Mismatch as
// everywhere. Sums associate as MPI chooses: SumOrder and SessionOptions::algorithms have no
// effect. MPI cannot give up an operation, nor go on without a rank. After a Timeout, a Cancelled
// or a PeerLost the buffers of unfinished operations stay MPI's, and the process, when it exits,
// ends the whole job with MPI_Abort. A rank that dies is MPI's business: its launcher ends the job.
#pragma once

#include <chrono>

#include "lockstep/coll/batch.h"
#include "lockstep/coll/session.h"

namespace lockstep::coll {

struct MpiOptions {
  /// For all ranks to call mpi_session, once MPI is initialised.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  SessionOptions options = {};
};

/// A collective over MPI_COMM_WORLD, not to be called by two threads of a process at the same time.
/// Unsupported if the program has initialised MPI with too low a thread level, InvalidUsage if MPI
/// is finalised or a former session left operations unfinished, Timeout if not all ranks come.
[[nodiscard]] Session mpi_session(const MpiOptions& options = {});

}  // namespace lockstep::coll
