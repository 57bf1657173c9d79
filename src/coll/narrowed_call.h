// NarrowedCall: an all-reduce of float32 carried out as one of a 16-bit type (CallOptions::wire).
// The inputs are rounded into memory of the executor's, where the carrier adds them in place as it
// adds any 16-bit type, in float32; the result is widened into the caller's output.
//
//   const NarrowedCall narrowed(call, scratch);   // in its turn: the operation before may have
//   carrier.start(narrowed.call(), descriptor);   // written the inputs
//   ...                                           // done
//   narrowed.widen();
//
// Borrows the call and the scratch. One thread at a time.
#pragma once

#include "coll/call.h"
#include "coll/scratch.h"

namespace lockstep::coll {

class NarrowedCall {
 public:
  /// `call` has a wire type and is sealed.
  NarrowedCall(const Call& call, Scratch& scratch);
  NarrowedCall(const NarrowedCall&) = delete;
  NarrowedCall& operator=(const NarrowedCall&) = delete;

  [[nodiscard]] const Call& call() const noexcept { return narrow_; }
  void widen() const;

 private:
  const Call& wide_;
  Call narrow_;
  std::byte* result_;
};

}  // namespace lockstep::coll
