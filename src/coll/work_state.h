// What a Work and the thread that carries it out share. A batch is several calls under one Work.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>

#include "base/fork.h"
#include "base/gate.h"
#include "base/status.h"
#include "coll/call.h"
#include "lockstep/coll/work.h"

namespace lockstep::coll {

struct Work::Shared {
  struct Issued {
    Call call;
    std::uint64_t ticket = 0;
    Deadline deadline = Deadline::never();
  };
  std::deque<Issued> calls;         // a deque, since calls do not move
  int rank = -1;                    // in the generation, whose operation it is
  std::uint32_t made_in = forks();  // the pump is of that process
  Gate gate;
  Status status;  // ordered by over
  std::atomic<bool> over = false;

  void finish(Status result) noexcept {
    status = std::move(result);
    over.store(true, std::memory_order_release);
    gate.notify();
  }
};

}  // namespace lockstep::coll
