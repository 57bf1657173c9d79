// What scripts/check-blas runs once for each BLAS: names the one in use, and times the products of
// a small net's layer, by one thread alone and by two at once, each limited to one thread.
//
//   blas_probe <kind that must be found>
//
// Exit code 1 if it was not found or threads suffer, 3 if the machine is too busy to tell: plain
// arithmetic, which cannot hinder itself, is timed in the same rounds and must not suffer either.
//
// Two threads with a core each should take as long as one does. Twice as long is what taking turns
// would cost, which is the limit; the reference BLAS is only named and timed.
#include <ATen/core/ivalue.h>  // before other headers of torch, for clang 14
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <latch>
#include <limits>
#include <map>
#include <thread>
#include <vector>

#include "lockstep/tensor.h"
#include "tensor/blas.h"
#include "tensor/operator_threads.h"

namespace lockstep::tensor {
namespace {

constexpr double kLimit = 2.0;
constexpr double kGood = 1.3;
constexpr int kMinRounds = 15;
constexpr int kMaxRounds = 40;
constexpr int kProducts = 4;

using Clock = std::chrono::steady_clock;

// Milliseconds from a common start until the last of `threads` has done `work`, after a first time
// that does not count: threads that take turns show, whoever makes them.
double milliseconds(int threads, const std::function<void()>& work) {
  std::latch ready(threads + 1);
  std::vector<std::jthread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&] {
      set_operator_threads(1);
      work();
      ready.arrive_and_wait();
      work();
    });
  }
  ready.arrive_and_wait();
  const auto start = Clock::now();
  running.clear();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// The best times of many short rounds, of one thread and of two.
struct Times {
  double one = std::numeric_limits<double>::infinity();
  double two = std::numeric_limits<double>::infinity();

  void measure(const std::function<void()>& work) {
    one = std::min(one, milliseconds(1, work));
    two = std::min(two, milliseconds(2, work));
  }
  [[nodiscard]] double ratio() const { return two / one; }
};

// The first layer of a classifier of small pictures, a batch of 256.
void products() {
  const Tensor x = at::ones({256, 784});
  const Tensor w = at::ones({784, 512});
  for (int i = 0; i < kProducts; ++i) at::mm(x, w);
}

void arithmetic() {
  volatile double sum = 0;
  for (int i = 0; i < 10'000'000; ++i) sum = sum + i;
}

int probe(const std::string& wanted) {
  const std::map<std::string, BlasKind> kinds = {{"pthread", BlasKind::openblas_pthread},
                                                 {"openmp", BlasKind::openblas_openmp},
                                                 {"serial", BlasKind::openblas_serial},
                                                 {"reference", BlasKind::reference}};
  const Blas blas = Blas::in_use();
  const OperatorThreads one(1);  // a BLAS may have one number for the process
  Times blas_times;
  Times machine;
  for (int i = 0; i < kMaxRounds && (i < kMinRounds || blas_times.ratio() > kGood); ++i) {
    blas_times.measure(products);
    machine.measure(arithmetic);
  }
  fmt::print("{:20} alone {:6.2f} ms, two threads {:6.2f} ms each, {:.2f} times   {}\n",
             to_string(blas.kind), blas_times.one / kProducts, blas_times.two / kProducts,
             blas_times.ratio(), blas.path);
  const auto kind = kinds.find(wanted);
  if (kind == kinds.end() || blas.kind != kind->second) {
    fmt::print("FAILED: this was taken for {}, wanted {}\n", to_string(blas.kind), wanted);
    return 1;
  }
  if (blas.kind == BlasKind::reference) return 0;
  if (machine.ratio() > kGood) {
    fmt::print("NOT JUDGED: two threads of plain arithmetic are {:.2f} times slower here\n",
               machine.ratio());
    return 3;
  }
  if (blas_times.ratio() > kLimit) {
    fmt::print("FAILED: two threads are {:.2f} times slower, the limit is {}\n", blas_times.ratio(),
               kLimit);
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
