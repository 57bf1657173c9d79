// A program of somebody who has only the installed headers and library.
#include <lockstep/coll/threads.h>

#include <atomic>
#include <cstdio>
#include <span>
#include <vector>

int main() {
  std::atomic<int> right = 0;
  lockstep::coll::run_ranks(4, [&](lockstep::coll::Session& group) {
    std::vector<float> x(1000, static_cast<float>(group.rank()));
    group.all_reduce(lockstep::Op::sum, std::span(x));
    if (x == std::vector<float>(1000, 6.0F)) ++right;
  });
  std::printf("%d of 4 ranks have the sum\n", right.load());
  return right == 4 ? 0 : 1;
}
