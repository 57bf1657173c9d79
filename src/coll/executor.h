// Executor: has the calls of one session carried out, in the order of their tickets: descriptor,
// deadlines and record of each operation, whatever carries it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "coll/call.h"
#include "coll/carrier.h"
#include "coll/long_wait.h"
#include "coll/records.h"
#include "coll/scratch.h"
#include "coll/turnstile.h"
#include "coll/work_state.h"

namespace lockstep::coll {

class Executor {
 public:
  /// Whether a rank of this group has closed its session of the group these messages belong to.
  using Deserted = std::function<bool(int rank)>;

  /// `records` is of all groups of this rank. `deserted` is for messages, else empty; any thread.
  /// `clock` is borrowed, null: the real one.
  Executor(std::unique_ptr<Carrier> carrier, const SessionOptions& options, const GroupSpec& group,
           std::shared_ptr<Records> records, Deserted deserted = {}, const Clock* clock = nullptr);

  /// Fixes the call's place in the order of operations.
  std::uint64_t issue() noexcept { return turnstile_.take(); }
  /// Carries out the call when its turn has come. On error the generation has failed with it.
  Status run(const Call& call, std::uint64_t ticket, Deadline deadline);
  /// All calls of a work, whose tickets are taken; the first error.
  Status run_all(const Work::Shared& work);

  /// Carries out an all-reduce of one small buffer without options, the shortest way if it repeats
  /// the call before. The buffers have been checked; throws what went wrong.
  void run_small(Op op, const ConstBuffer& input, const Buffer& output, Here here);

  /// Waits until all calls that were issued are over; false if they are not at the deadline.
  bool finish(Deadline deadline) noexcept;
  /// This rank has left the group: frees what the group shares, unless an operation is under way.
  /// Later calls are refused. True if it did.
  bool retire() noexcept;

  [[nodiscard]] transport::GroupEnd& end() noexcept { return end_; }
  [[nodiscard]] const Recorder& recorder() const noexcept { return *recorder_; }
  [[nodiscard]] std::uint64_t outstanding() const noexcept { return turnstile_.outstanding(); }

 private:
  Status carry_out(const Call& call, std::uint64_t sequence, Deadline deadline);
  [[nodiscard]] wire::Descriptor describe(const Call& call, std::uint64_t sequence) const;
  /// False: nothing was done, the usual way is to be taken with the same ticket.
  bool run_again(Op op, const ConstBuffer& input, const Buffer& output, Here here,
                 std::uint64_t ticket);
  /// Its turn has not come within its timeout.
  [[nodiscard]] Status not_started(const Call& call, std::uint64_t sequence) const noexcept;
  /// After a failure was reported here: returns when it has ended the generation for this rank.
  void have_verdict() noexcept;
  /// The end of a call: its record, and why it failed.
  Status close(const wire::Descriptor& descriptor, Here here, State state);
  /// The end of a call that threw: call inside the catch block.
  Status thrown(std::uint64_t sequence) noexcept;
  /// Why the generation has failed, and what this rank had asked for.
  [[nodiscard]] Status failure_of(const wire::Descriptor& descriptor, Here here,
                                  const Moved& moved) const;
  State drive(const Call& call, const wire::Descriptor& descriptor, Deadline deadline);
  /// The peer has left before it made its end of these messages: it will never come.
  [[nodiscard]] bool never_comes(int peer) const;
  [[nodiscard]] Status has_left(int peer, const wire::Descriptor& descriptor) const;
  void report_stall(const wire::Descriptor& descriptor, LongWait& wait, Time now) const;
  [[nodiscard]] Status timed_out(const Call& call, const wire::Descriptor& descriptor,
                                 Duration waited) const;
  [[nodiscard]] std::vector<int> awaited() const;

  std::unique_ptr<Carrier> carrier_;
  transport::GroupEnd& end_;
  SessionOptions options_;
  std::uint32_t group_;
  std::shared_ptr<Records> records_;
  std::shared_ptr<Recorder> recorder_;
  Deserted deserted_;
  Scratch narrowed_;  // of calls that travel in another type
  Turnstile turnstile_;
  bool retired_ = false;  // of whoever has the turn
  MonotonicClock real_clock_;
  const Clock& clock_;
};

}  // namespace lockstep::coll
