// What a rank says when a peer's part of their shared memory leads nowhere.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "lockstep/error.h"
#include "transport/group_end.h"

namespace lockstep::transport {

/// `what` goes on after "rank 3 ...".
[[noreturn]] inline void refuse_damaged(const GroupEnd& end, int peer, std::string_view what) {
  const int rank = end.member(peer);
  throw DataError(fmt::format("rank {} {}: its part of the shared memory is damaged", rank, what),
                  Code::data_loss, {rank});
}

}  // namespace lockstep::transport
