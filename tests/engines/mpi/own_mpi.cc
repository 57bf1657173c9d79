// Programs that initialise MPI themselves.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "lockstep/coll/mpi.h"
#include "tests/engines/mpi/say.h"

namespace lockstep::coll {
namespace {

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

void initialised() {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  {
    Session group = mpi_session();
    std::vector<int> x(3, 1);
    group.all_reduce(Op::sum, std::span(x));
    if (x[2] != group.size()) std::abort();
  }
  // The program's MPI works on and is its own to finalise.
  int finalised = 1;
  MPI_Finalized(&finalised);
  MPI_Barrier(MPI_COMM_WORLD);
  if (finalised == 0 && world_rank() == 0) std::fputs("rank 0: still the program's\n", stderr);
  MPI_Finalize();
}

void single_threaded() {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SINGLE, &level);
  try {
    Session group = mpi_session();
  } catch (const Error& error) {
    say(world_rank(), error);
  }
  MPI_Finalize();
}

void finalised_first() {
  MPI_Init(nullptr, nullptr);
  const int rank = world_rank();
  MPI_Finalize();
  try {
    Session group = mpi_session();
  } catch (const Error& error) {
    say(rank, error);
  }
}

}  // namespace
}  // namespace lockstep::coll

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "initialised") lockstep::coll::initialised();
  if (name == "single_threaded") lockstep::coll::single_threaded();
  if (name == "finalised_first") lockstep::coll::finalised_first();
}
