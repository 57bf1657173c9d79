// GroupEnd: one rank's end of a group, whatever carries its operations: who is in it, how its
// operations wait, and how it fails.
//
// Nothing here blocks except wait(), quiesce() and await_verdict().
//
// Thread rule: one thread at a time waits; fail() and has_left() may be called from any thread.
#pragma once

#include <chrono>
#include <vector>

#include "base/deadline.h"
#include "base/function_ref.h"
#include "base/status.h"

namespace lockstep::transport {

inline constexpr int kNobody = -1;

/// How long a failed operation waits for the ranks to agree on the cause. Longer than it takes to
/// give up a silent rank with the default Liveness.
inline constexpr auto kVerdictPatience = std::chrono::seconds(10);

class GroupEnd {
 public:
  GroupEnd() = default;
  GroupEnd(const GroupEnd&) = delete;
  GroupEnd& operator=(const GroupEnd&) = delete;
  virtual ~GroupEnd() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// What this group's `rank` is called in the generation.
  [[nodiscard]] virtual int member(int rank) const noexcept { return rank; }

  /// Sticky; ok while the generation lives. Cheap to ask: one atomic load.
  [[nodiscard]] virtual bool failed() const noexcept = 0;
  [[nodiscard]] virtual Status failure() const = 0;
  /// Ends the generation on every rank, or proposes to where ranks must agree first; the first
  /// cause wins. Any thread.
  virtual void fail(const Status& why) noexcept = 0;
  /// After a failure: returns when no peer that lives touches this rank's memory any more, nor will.
  virtual void quiesce() noexcept {}
  /// After a failure was reported here: returns when the ranks have agreed on the cause, or after
  /// kVerdictPatience and settle_alone(). Then failure() names it.
  virtual void await_verdict() noexcept {}
  /// Where ranks must agree on the cause and take too long: what was reported here first is the
  /// cause on this rank. Any thread.
  virtual void settle_alone() noexcept {}

  /// A short wait: polls `done` without sleeping or reading a clock. True once it holds or the
  /// group failed.
  virtual bool spin(FunctionRef<bool()> done) { return done() || failed(); }
  /// A long wait: until `done` holds or the group has failed (true) or the deadline has passed
  /// (false). `peer` is the one the operation waits for, kNobody if that is not known. While
  /// waiting, it also looks whether the peer asked for something else or is gone, and fails if so.
  virtual bool wait(int peer, FunctionRef<bool()> done, Deadline deadline) = 0;
  /// Ranks that have not arrived at the current operation, as far as is known; for reports.
  [[nodiscard]] virtual std::vector<int> missing() const { return {}; }
  /// That rank takes part in this group no more, as far as is known here. Any thread.
  [[nodiscard]] virtual bool has_left(int /*rank*/) const { return false; }
  /// This rank takes part in this group no more.
  virtual void leave() noexcept {}
  /// After leave(): frees what can be freed. Nothing may be called any more but member(), rank(),
  /// size() and what asks for the failure.
  virtual void retire() noexcept {}
};

}  // namespace lockstep::transport
