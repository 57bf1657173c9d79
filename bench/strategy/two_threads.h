// Two threads that know nothing of each other: what two replicas are measured against. One of them
// is the caller's, as replica 0's is; both are on cores of their own.
#pragma once

#include <barrier>
#include <functional>
#include <thread>

namespace lockstep::bench {

class TwoThreads {
 public:
  TwoThreads();
  ~TwoThreads();
  TwoThreads(const TwoThreads&) = delete;
  TwoThreads& operator=(const TwoThreads&) = delete;

  /// Runs work(0) here and work(1) there at the same time; returns when both are over.
  void run(const std::function<void(int)>& work);

 private:
  std::barrier<> begin_{2};
  std::barrier<> end_{2};
  const std::function<void(int)>* work_ = nullptr;  // null: the end
  std::jthread other_;
};

}  // namespace lockstep::bench
