// Operation: one collective in progress on one rank. The only place where plans are executed.
//
// It is a state machine: poll() does what can be done now and returns. The thread that called a
// blocking collective loops on it, or a pump does, or the simulator interleaves many of them.
//
//   operation.start(plan, bindings, descriptor, exposure);
//   while ((state = operation.poll(link)) == State::pending) link.wait(operation.waiting_for(),
//   ...);
//
// Borrows everything; what start() is given must outlive the operation. One thread at a
// time.
#pragma once

#include <climits>
#include <cstddef>
#include <span>

#include "coll/moved.h"
#include "coll/state.h"
#include "lockstep/dtype.h"
#include "lockstep/op.h"
#include "plan/plan.h"
#include "transport/link.h"

namespace lockstep::coll {

/// The memory behind a plan's buffers.
struct Bindings {
  DType dtype = DType::uint8;
  Op op = Op::sum;
  double divisor = 1;  // applied by finishing reductions (mean)
  plan::SlotStores slot_stores = plan::SlotStores::cached;  // of copies into the own slot
  std::span<const transport::Pieces> inputs;                // one per local replica
  transport::Pieces output;
  std::byte* scratch = nullptr;  // plan.scratch_count elements of dtype
  std::byte* partial = nullptr;  // plan.partial_count elements of accumulator_of(dtype)
};

class Operation {
 public:
  void start(const plan::Plan& plan, const Bindings& bindings, const wire::Descriptor& descriptor,
             const transport::Exposure& exposure);

  /// The same for an operation that has begun and done its first `done` instructions.
  void resume(const plan::Plan& plan, const Bindings& bindings, const wire::Descriptor& descriptor,
              const transport::Exposure& exposure, std::size_t done);

  /// Executes up to `budget` instructions. failed: the link knows why.
  State poll(transport::Link& link, int budget = INT_MAX);

  /// The peer that keeps a pending operation waiting; -1 if none does.
  [[nodiscard]] int waiting_for() const noexcept { return waiting_for_; }
  /// Grows whenever something was done or moved, either way; what a progress deadline looks at.
  [[nodiscard]] std::uint64_t progress(const transport::Link& link) const noexcept {
    return progress_ + queued_ - link.unsent();
  }
  /// Bytes that went between this rank and others. Goes through the plan: for reports.
  [[nodiscard]] Moved moved(const transport::Link& link) const;

 private:
  bool execute(const plan::Instruction& instruction, transport::Link& link);
  void send(const plan::Instruction& instruction, transport::Link& link);
  bool receive(const plan::Instruction& instruction, transport::Link& link);
  /// Elements of an instruction.
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  bool compute(const plan::Instruction& instruction, transport::Link& link);
  void compute(const plan::Instruction& instruction, Range range, transport::Link& link);
  void reduce(const plan::Instruction& instruction, Range range, transport::Link& link);
  /// The same where every buffer lies in one piece, as most do; false if one does not.
  bool reduce_flat(const plan::Instruction& instruction, Range range, transport::Link& link);
  void copy(const plan::Instruction& instruction, Range range, transport::Link& link);

  const plan::Plan* plan_ = nullptr;
  const Bindings* bindings_ = nullptr;
  const wire::Descriptor* descriptor_ = nullptr;
  const transport::Exposure* exposure_ = nullptr;
  bool begun_ = false;
  std::size_t next_ = 0;     // instruction
  std::uint64_t moved_ = 0;  // bytes of it already received
  std::uint64_t progress_ = 0;
  std::uint64_t queued_ = 0;  // bytes given to the link to send, ever
  int waiting_for_ = -1;
};

}  // namespace lockstep::coll
