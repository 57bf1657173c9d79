// A program of somebody whose cluster has an MPI.
#include <lockstep/coll/join.h>

#include <cstdio>
#include <span>
#include <vector>

int main() {
  lockstep::coll::JoinOptions options;
  options.options.engine = lockstep::coll::Engine::mpi;
  lockstep::coll::Session group = lockstep::coll::join(options);
  std::vector<float> x(1000, 1);
  group.all_reduce(lockstep::Op::sum, std::span(x));
  const bool right = group.transport() == "mpi" && x[999] == 2;
  if (group.rank() == 0)
    std::printf("two ranks by %s give %g\n", group.transport().c_str(), x[999]);
  return right ? 0 : 1;
}
