// Pump: the thread that carries out a session's asynchronous operations, in the order they were
// issued.
#pragma once

#include <list>
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

  using Queue = std::list<std::shared_ptr<Work::Shared>>;
  /// Appends these. Needs no memory: their tickets are taken already.
  void push(Queue works) noexcept;

 private:
  void run(const std::stop_token& stop);
  std::shared_ptr<Work::Shared> pop();

  Executor& executor_;
  Gate gate_;
  Mutex mutex_;
  Queue queue_ GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace lockstep::coll
