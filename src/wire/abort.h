// Abort: the payload of an abort frame, a Status that travels.
//
// A proposal says "this ended it for me"; a verdict says "this is what ended it", and is what every
// rank reports. control.h decides which proposal becomes the verdict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace lockstep::wire {

enum class Standing : std::uint8_t { proposal, verdict };

struct Abort {
  Standing standing = Standing::proposal;
  std::int32_t origin = -1;  // the rank that noticed it
  Status cause;
};

/// The payload, at most kMaxControlPayload bytes: a message or a list of culprits too long for it
/// is cut. The cause must not be ok.
std::vector<std::byte> encode(const Abort& abort);

/// DataError naming the field that is wrong. Culprits and origin must be below `size`.
Status decode(std::span<const std::byte> payload, int size, Abort& abort);

}  // namespace lockstep::wire
