// What scripts/check-blas runs once for each BLAS: names the one in use, and times the products of
// a small net's layer, by one thread alone and by two at once, each limited to one thread.
//
//   blas_probe <kind that must be found>          exit code 1 if it was not, or if threads suffer
//
// Two threads with a core each should take as long as one does. Twice as long is what taking turns
// would cost, which is the limit; the reference BLAS is only named and timed.
#include <ATen/core/ivalue.h>  // before other headers of torch, for clang 14
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <map>
#include <thread>
#include <vector>

#include "lockstep/tensor.h"
#include "tensor/blas.h"

namespace lockstep::tensor {
namespace {

constexpr double kLimit = 2.0;
constexpr int kRounds = 15;
constexpr int kProducts = 10;

// The first layer of a classifier of small pictures: a batch of 256.
double milliseconds_of_products() {
  const Tensor x = at::ones({256, 784});
  const Tensor w = at::ones({784, 512});
  at::mm(x, w);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kProducts; ++i) at::mm(x, w);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  return taken.count() / kProducts;
}

double alone() { return milliseconds_of_products(); }

// The slower of the two.
double together() {
  double taken[2] = {};
  std::latch start(2);
  std::vector<std::jthread> threads;
  for (double& mine : taken) {
    threads.emplace_back([&start, &mine] {
      start.arrive_and_wait();
      mine = milliseconds_of_products();
    });
  }
  threads.clear();
  return std::max(taken[0], taken[1]);
}

int probe(const std::string& wanted) {
  const std::map<std::string, BlasKind> kinds = {{"pthread", BlasKind::openblas_pthread},
                                                 {"openmp", BlasKind::openblas_openmp},
                                                 {"serial", BlasKind::openblas_serial},
                                                 {"reference", BlasKind::reference}};
  const Blas blas = Blas::in_use();
  set_blas_threads(1);
  // The best of several rounds: this machine may have other work.
  double one = alone();
  double two = together();
  for (int i = 1; i < kRounds; ++i) {
    one = std::min(one, alone());
    two = std::min(two, together());
  }
  fmt::print("{:20} alone {:6.2f} ms, two threads {:6.2f} ms each, {:.2f} times   {}\n",
             to_string(blas.kind), one, two, two / one, blas.path);
  const auto kind = kinds.find(wanted);
  if (kind == kinds.end() || blas.kind != kind->second) {
    fmt::print("FAILED: this was taken for {}, wanted {}\n", to_string(blas.kind), wanted);
    return 1;
  }
  const bool can_run_two = std::thread::hardware_concurrency() >= 2;
  if (blas.kind != BlasKind::reference && can_run_two && two > kLimit * one) {
    fmt::print("FAILED: two threads are {:.2f} times slower, the limit is {}\n", two / one, kLimit);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::tensor

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print("usage: blas_probe pthread|openmp|serial|reference\n");
    return 2;
  }
  return lockstep::tensor::probe(argv[1]);
}
