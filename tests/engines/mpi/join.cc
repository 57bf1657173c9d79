// A program that names nothing of the engine: linking lockstep::mpi is enough.
#include "lockstep/coll/join.h"

#include <cstdio>
#include <string_view>
#include <vector>

using namespace lockstep;
using namespace lockstep::coll;

int main(int argc, char** argv) {
  const bool by_option = argc > 1 && std::string_view(argv[1]) == "join_by_option";
  JoinOptions options;
  options.options.engine = Engine::mpi;
  Session group = by_option ? join(options) : join();
  std::vector<int> x(1, 1);
  group.all_reduce(Op::sum, std::span(x));
  std::fprintf(stderr, "rank %d of %d by %s: %d\n", group.rank(), group.size(),
               group.transport().c_str(), x[0]);
}
