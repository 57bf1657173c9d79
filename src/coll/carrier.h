// Carrier: carries out the operations of one group, one at a time: plans over a link
// (plan_carrier.h), or the collectives of an engine. Deadlines, order and records are the
// executor's; a carrier compares what the ranks ask for and moves the data.
//
//   carrier.start(call, descriptor);
//   while ((state = carrier.poll()) == State::pending) carrier.end().wait(...);
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "coll/call.h"
#include "coll/group_spec.h"
#include "coll/moved.h"
#include "coll/state.h"
#include "lockstep/coll/options.h"
#include "transport/group_end.h"
#include "wire/descriptor.h"

namespace lockstep::coll {

class Carrier {
 public:
  Carrier() = default;
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;
  virtual ~Carrier() = default;

  /// The group: who is in it, how to wait in it, how it fails. The same object always.
  [[nodiscard]] virtual transport::GroupEnd& end() noexcept = 0;

  /// Prepares the call, which outlives the operation as the descriptor does. Adds the plan's hash
  /// to the descriptor and returns what the record calls the algorithm: a name that lives as long
  /// as the program.
  virtual const char* start(const Call& call, wire::Descriptor& descriptor) = 0;
  /// Moves on. failed: end() knows why.
  virtual State poll() = 0;

  // The shortest way through an all-reduce of one small buffer that repeats the call before: what
  // is known of that one is not worked out again.

  /// What the record needs to know of it.
  struct Again {
    wire::Descriptor descriptor;
    const char* algorithm = "";
  };
  /// Begins it if the carrier can, up to where the others' values are needed; finish_again() must
  /// follow, since peers may have the value already. Null: nothing was done, start() is to be
  /// called.
  virtual const Again* begin_again(Op /*op*/, const ConstBuffer& /*input*/,
                                   const Buffer& /*output*/, std::uint64_t /*sequence*/) {
    return nullptr;
  }
  /// True: done. False: it takes longer; go_on() and poll() are to be called.
  virtual bool finish_again(const ConstBuffer& /*input*/, const Buffer& /*output*/) {
    return false;
  }
  virtual void go_on(const Call& /*call*/) {}

  /// This rank has left the group, and there will be no more operations: frees what it can.
  virtual void retire() noexcept { end().retire(); }

  /// The peer that keeps a pending operation waiting, as of the last poll; kNobody if that is not
  /// known.
  [[nodiscard]] int waiting_for() const noexcept { return waiting_for_; }
  /// Grows whenever something was done or moved, either way; what a progress deadline looks at.
  [[nodiscard]] virtual std::uint64_t progress() const noexcept = 0;
  /// How far the operation has come, as far as the carrier knows; for reports.
  [[nodiscard]] virtual Moved moved() const { return {}; }

 protected:
  int waiting_for_ = transport::kNobody;
};

/// Makes this rank's carrier of a group; `rank` is its place in it.
using MakeCarrier = std::function<std::unique_ptr<Carrier>(const GroupSpec& spec, int rank,
                                                           const SessionOptions& options)>;

}  // namespace lockstep::coll
