// What a rank reports that needs another one for an operation after that one has closed its session.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "wire/descriptor.h"

namespace lockstep::transport {

struct LeftGroup {
  int peer = 0;  // ranks of the generation
  int rank = 0;
  /// The last operation of the group in which it took part; 0: in none, empty: not known.
  std::optional<std::uint64_t> finished_at = {};
  /// In words, if there is more to say: "and its connection broke".
  std::string how = {};
};

/// PeerLost with FAILED_PRECONDITION: the peer is well, and the program asks for an operation too
/// many. Names the peer.
inline Status left_group(const LeftGroup& left, const wire::Descriptor& operation) {
  std::string finished;
  if (left.finished_at) {
    finished = fmt::format("; it finished {}, this rank asked for {}",
                           *left.finished_at > 0 ? fmt::format("at operation {}", *left.finished_at)
                                                 : "before its first operation",
                           operation.sequence);
  }
  return {
      ErrorKind::peer_lost,
      Code::failed_precondition,
      fmt::format("rank {} has left the group{}{} (its session was closed), but rank {} needs it "
                  "for operation {}: {}{}",
                  left.peer, left.how.empty() ? "" : " ", left.how, left.rank, operation.sequence,
                  wire::describe(operation), finished),
      {left.peer}};
}

}  // namespace lockstep::transport
