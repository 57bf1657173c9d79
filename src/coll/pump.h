// Pump: the thread that carries out a session's asynchronous operations, in the order they were
// issued.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "base/gate.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "coll/executor.h"
#include "coll/work_state.h"

namespace lockstep::coll {

class Pump {
 public:
  /// Throws SystemError if no thread can be had.
  Pump(Executor& executor, const std::string& name);
  /// Carries out what is queued (which fails at once when the generation has) and ends the thread.
  ~Pump();

  void push(std::shared_ptr<Work::Shared> work);

 private:
  void run(const std::stop_token& stop);
  std::shared_ptr<Work::Shared> pop();

  Executor& executor_;
  Gate gate_;
  Mutex mutex_;
  std::deque<std::shared_ptr<Work::Shared>> queue_ GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace lockstep::coll
