// How many threads libtorch may take inside an operation, for the length of a step on this thread.
// Never derived from the layout: another number gives other bits.
#pragma once

#include <ATen/Parallel.h>

namespace lockstep::detail {

class OperatorThreads {
 public:
  explicit OperatorThreads(int count) : before_(at::get_num_threads()), count_(count) {
    if (count_ != before_) at::set_num_threads(count_);
  }
  ~OperatorThreads() {
    if (count_ != before_) at::set_num_threads(before_);
  }
  OperatorThreads(const OperatorThreads&) = delete;
  OperatorThreads& operator=(const OperatorThreads&) = delete;

 private:
  int before_;
  int count_;
};

}  // namespace lockstep::detail
