// Processes as ranks: lockstep launch -n 2 -- ./processes
#include <lockstep/coll/join.h>
#include <lockstep/error.h>

#include <algorithm>
#include <cstdio>
#include <span>

namespace ls = lockstep;

int main() {
  try {
    for (int round = 1; round <= 2; ++round) {
      // Who the others are is in the environment; alone, it is a group of one.
      ls::coll::Session group = ls::coll::join();
      // Memory of the session: ranks of the same host read and write it in place.
      const ls::coll::Memory memory = group.allocate(1000 * sizeof(float));
      const std::span<float> x = memory.as<float>();
      std::fill(x.begin(), x.end(), static_cast<float>(group.rank() + 1));
      group.all_reduce(ls::Op::sum, x);
      std::printf("round %d: rank %d of %d over %s: %.0f\n", round, group.rank(), group.size(),
                  group.transport().c_str(), x[0]);
    }  // the session is closed; the second round joins again
  } catch (const ls::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
