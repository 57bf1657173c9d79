// Engines that are libraries of their own: linking one makes it known here, and join() uses it
// where it is asked for. This library knows none of them.
#pragma once

#include <chrono>

#include "lockstep/coll/options.h"
#include "lockstep/coll/session.h"

namespace lockstep::coll {

/// Forms the group of all ranks; Timeout if they have not all come by then.
using FormGroup = Session (*)(const SessionOptions& options, std::chrono::nanoseconds timeout);

void provide_engine(Engine engine, FormGroup form) noexcept;
/// Null: not linked into this program.
FormGroup engine_of(Engine engine) noexcept;

}  // namespace lockstep::coll
