// A plan as text, one instruction a line, and what it costs in messages.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/dtype.h"
#include "plan/plan.h"

namespace lockstep::tool {

/// "   3  reduce   128  output[0..128) = input[0..128) + rank 1's input[0..128)", one line each.
/// `rank` is whose plan it is; places of its own are named without a rank.
std::string text_of(const plan::Plan& plan, int rank);

struct Traffic {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t peers = 0;  // ranks that it exchanges messages with
};

/// What the plan sends, and with whom it talks.
Traffic traffic_of(const plan::Plan& plan, DType dtype);

}  // namespace lockstep::tool
