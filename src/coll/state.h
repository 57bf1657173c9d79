// How far an operation is.
#pragma once

namespace lockstep::coll {

enum class State : unsigned char { pending, done, failed };

}  // namespace lockstep::coll
