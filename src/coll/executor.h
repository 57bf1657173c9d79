// Executor: carries out calls of one session on its link: plan, descriptor, buffers, the operation,
// its deadlines and its record. Calls run in the order of their tickets.
#pragma once

#include <memory>
#include <vector>

#include "coll/call.h"
#include "coll/operation.h"
#include "coll/planner.h"
#include "coll/recorder.h"
#include "coll/turnstile.h"

namespace lockstep::coll {

class Executor {
 public:
  /// `group` tells the operations of different groups of a generation apart.
  Executor(std::unique_ptr<transport::Link> link, plan::Layout layout,
           const SessionOptions& options, std::uint32_t group);

  /// Fixes the call's place in the order of operations.
  std::uint64_t issue() noexcept { return turnstile_.take(); }
  /// Carries out the call when its turn has come. On error the generation has failed with it.
  Status run(const Call& call, std::uint64_t ticket, Deadline deadline);

  /// Carries out an all-reduce of one buffer without a deadline of its own, the shortest way: if it
  /// repeats the one before through slots, what is known of that one is not worked out again. The
  /// buffers have been checked; throws what went wrong.
  void run_small(Op op, ConstBuffer input, Buffer output, Here here);

  [[nodiscard]] transport::Link& link() noexcept { return *link_; }
  [[nodiscard]] const plan::Layout& layout() const noexcept { return planner_.layout(); }
  [[nodiscard]] const Recorder& recorder() const noexcept { return recorder_; }
  [[nodiscard]] std::uint64_t outstanding() const noexcept { return turnstile_.outstanding(); }

 private:
  /// Memory of the engine's own, kept from call to call.
  class Arena {
   public:
    std::byte* reserve(std::size_t bytes);

   private:
    struct Free {
      void operator()(std::byte* memory) const noexcept;
    };
    std::unique_ptr<std::byte, Free> memory_;
    std::size_t bytes_ = 0;
  };

  Status carry_out(const Call& call, std::uint64_t sequence, Deadline deadline);
  /// False: nothing has been done, the long way is to be taken with the same ticket.
  bool run_again(Op op, ConstBuffer input, Buffer output, Here here, std::uint64_t ticket);
  [[nodiscard]] Bindings bind(const Call& call, const plan::Plan& plan);
  /// The end of a call: its record, and why it failed.
  Status close(std::uint64_t sequence, State state);
  State drive(const Call& call, const wire::Descriptor& descriptor, Deadline deadline);
  void report_stall(const wire::Descriptor& descriptor, Duration waited) const;
  [[nodiscard]] Status timed_out(const Call& call, const wire::Descriptor& descriptor,
                                 Duration waited) const;
  [[nodiscard]] std::vector<int> awaited() const;

  std::unique_ptr<transport::Link> link_;
  SessionOptions options_;
  std::uint32_t group_;
  Planner planner_;
  Recorder recorder_;
  Turnstile turnstile_;
  Operation operation_;
  /// The last call, if run_again() can repeat it. Whoever has the turn.
  struct Repeatable {
    const PlannedCall* planned = nullptr;  // null: there is none
    wire::Descriptor descriptor;
    std::uint64_t count = 0;
    Op op = Op::sum;
    DType dtype = DType::float32;
  };
  Repeatable last_;
  Status own_failure_;  // of this rank's own making
  Arena scratch_;
  Arena partial_;
  MonotonicClock clock_;
};

}  // namespace lockstep::coll
