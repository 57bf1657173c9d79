#include "bench/strategy/two_threads.h"

#include <ATen/Parallel.h>

#include "bench/support/paired.h"

namespace lockstep::bench {

TwoThreads::TwoThreads()
    : other_([this] {
        at::set_num_threads(1);
        pin_one_of(2, 1);
        for (;;) {
          begin_.arrive_and_wait();
          if (work_ == nullptr) return;
          (*work_)(1);
          end_.arrive_and_wait();
        }
      }) {}

TwoThreads::~TwoThreads() {
  work_ = nullptr;
  begin_.arrive_and_wait();
}

void TwoThreads::run(const std::function<void(int)>& work) {
  at::set_num_threads(1);
  work_ = &work;
  begin_.arrive_and_wait();
  work(0);
  end_.arrive_and_wait();
}

}  // namespace lockstep::bench
