#include <lockstep/coll/threads.h>

#include <cstdio>
#include <span>
#include <vector>

int main() {
  // Four ranks, each a thread with its own session of one group.
  lockstep::coll::run_ranks(4, [](lockstep::coll::Session& group) {
    std::vector<float> x(1000, static_cast<float>(group.rank()));
    group.all_reduce(lockstep::Op::sum, std::span(x));
    std::printf("rank %d of %d: %.0f\n", group.rank(), group.size(), x[0]);  // 6 on every rank
  });
}
