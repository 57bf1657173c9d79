// The roster on the wire: the Hellos of all ranks, in the order of the ranks.
//
// Rank 0 sends the roster to every rank, so its size counts twice. Ranks of one job differ in few
// bytes. A row is therefore sent as its difference from the row before it, the first one as the
// difference from zeros: about 30 bytes instead of the 280 of a Hello and the 36 of a frame.
//
// A row is one byte, the number of pieces, and the pieces. A piece is two bytes and its content: so
// many bytes are those of the row before, and so many are new. What follows the last piece is that
// of the row before. A row lies in one payload.
//
//   for (const auto& payload : encode_members(roster)) send(FrameType::members, payload);
//
//   Members members(size);                    // the receiver
//   raise_if_error(members.take(payload));    // for each frame
//   if (members.rows().size() == size) ...
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "wire/hello.h"

namespace lockstep::wire {

/// Payloads of frames, none longer than kMaxControlPayload.
std::vector<std::vector<std::byte>> encode_members(std::span<const Hello> members);

class Members {
 public:
  explicit Members(int most) : most_(static_cast<std::size_t>(most)) {}

  /// DataError if it is no payload of encode_members(), has an unreadable Hello, or has more rows
  /// than there may be.
  Status take(std::span<const std::byte> payload);
  [[nodiscard]] const std::vector<Hello>& rows() const noexcept { return rows_; }

 private:
  std::size_t most_;
  std::array<std::byte, sizeof(Hello)> last_{};
  std::vector<Hello> rows_;
};

}  // namespace lockstep::wire
