// Plan: what one rank does in one collective, as data.
//
// A plan is a list of instructions over named buffers, made by a pure function of (rank, layout,
// counts, tuning). An engine executes the instructions strictly in order; only sends run in the
// background. check.h executes the plans of all ranks against each other and proves them.
//
// Meaning of the instructions:
//   send     starts sending a region to a peer; the region must not change until the peer has
//            received it (ordered by a later message from that peer) or until a drain of that peer
//   receive  waits until a region has been filled by the next bytes that the peer sent; bytes
//   between
//            two ranks keep their order, so halves match one to one
//   drain    waits until the peer has received everything sent to it, or at least until that memory
//            may change (a transport may hold a copy): it tells nothing else about the peer
//   publish  makes everything done so far visible to all ranks under a stage number, growing from 1
//   await    waits until the peer has published that stage (or a later one) in this operation
//   reduce   combines source regions into target regions (kernel/reduce.h); `finish` marks the one
//            reduction that completes an element: it applies mean's division
//   copy     one source region to one or more target regions of the same form
// The operation ends when the list is done and all sends are drained. Regions of other ranks may
// appear as sources and targets (shared memory); the order is then the plan's own business, through
// publish and await. After its end a rank's caller may change or free its input and output at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/layout.h"

namespace lockstep::plan {

/// Stages of one operation. A flag between ranks holds a stage beside the operation's number.
inline constexpr int kStageBits = 20;
inline constexpr std::uint32_t kStages = std::uint32_t{1} << kStageBits;

/// The collectives.
enum class Kind : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  barrier,
  send_receive,
};
inline constexpr int kKindCount = 10;
const char* to_string(Kind kind) noexcept;

/// Where elements lie. input and output are the caller's and may be the same memory where the
/// collective allows "in place"; the others belong to the engine. A place of form "partial" holds
/// elements of the accumulator type (kernel::Form::partial): only `partial` does.
enum class Buffer : std::uint8_t {
  input,  // index: which of the rank's replicas
  output,
  scratch,  // private, values
  partial,  // private, partial sums
  slot,     // staging that peers may read and store to, values; kSlots of them, used in turn by
            // successive operations
};

/// A slot used by the k-th slot operation of a group may be written again by the (k + kSlots)-th.
inline constexpr int kSlots = 2;

struct Place {
  int rank = 0;  // whose buffer
  Buffer buffer = Buffer::input;
  int index = 0;             // of input: replica within the rank; else 0
  std::uint64_t offset = 0;  // elements

  friend bool operator==(const Place&, const Place&) = default;
};

enum class Verb : std::uint8_t { send, receive, drain, publish, await, reduce, copy };

struct Instruction {
  Verb verb = Verb::send;
  bool finish = false;      // reduce
  int peer = -1;            // send, receive, drain, await
  std::uint32_t stage = 0;  // publish, await; below kStages
  std::uint64_t count = 0;  // elements
  // Slices of Plan::places and Plan::merges.
  std::uint32_t sources = 0, source_count = 0;
  std::uint32_t targets = 0, target_count = 0;
  std::uint32_t merges = 0;  // reduce: source_count entries (kernel::Reduction::merges)

  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct Plan {
  std::vector<Instruction> code;
  std::vector<Place> places;
  std::vector<std::uint8_t> merges;
  std::uint64_t scratch_count = 0;  // elements needed
  std::uint64_t partial_count = 0;
  std::uint64_t slot_count = 0;  // elements of this rank's slot; 0: no slot is used
  std::uint64_t slot_most = 0;   // of the largest slot of any rank: the same in all ranks' plans

  [[nodiscard]] std::span<const Place> sources_of(const Instruction& i) const {
    return std::span(places).subspan(i.sources, i.source_count);
  }
  [[nodiscard]] std::span<const Place> targets_of(const Instruction& i) const {
    return std::span(places).subspan(i.targets, i.target_count);
  }
  [[nodiscard]] std::span<const std::uint8_t> merges_of(const Instruction& i) const {
    return std::span(merges).subspan(i.merges, i.source_count);
  }
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// Memory that a plan takes.
inline std::size_t bytes_of(const Plan& plan) noexcept {
  return plan.code.size() * sizeof(Instruction) + plan.places.size() * sizeof(Place) +
         plan.merges.size();
}

/// Whether partial sums have the elements' own type (they may then lie in the output) or a wider
/// one.
enum class Accumulator : std::uint8_t { same, wide };

/// What all ranks agree on; with a rank it determines the plan.
///
/// Buffers by kind (N = layout.ranks(), counts in elements):
///   all_reduce      each replica's input[count]; output[count] on every rank
///   reduce          input[count]; output[count] on root only
///   broadcast       input[count] on root; output[count] on every rank, root included
///   all_gather      input[counts[r]] on rank r; output[sum] everywhere, rank order
///   reduce_scatter  each replica's input[sum of counts]; output[counts[r]] on rank r
///   gather          input[counts[r]]; output[sum] on root
///   scatter         input[sum] on root; output[counts[r]] on rank r
///   all_to_all      input[N * count], output[N * count]: block p of the input goes to rank p
///   barrier         nothing
///   send_receive    input[count] on root (the sender), output[count] on `to`
/// Replicas beyond one per rank matter to all_reduce, reduce and reduce_scatter only. In place:
/// output and input(0) may be the same memory for all_reduce, reduce, broadcast; the plan must be
/// right either way.
struct Request {
  Kind kind = Kind::all_reduce;
  std::uint64_t count = 0;
  std::vector<std::uint64_t> counts =
      {};  // per rank, for all_gather, reduce_scatter, gather, scatter
  int root = 0;
  int to = 0;  // send_receive
  Accumulator accumulator = Accumulator::same;
  std::uint64_t chunk = 1 << 14;   // elements moved per message in pipelined plans
  std::uint64_t staged_chunk = 0;  // the same through slots; 0: as many as in messages

  [[nodiscard]] std::uint64_t staged() const noexcept {
    return staged_chunk == 0 ? chunk : staged_chunk;
  }
};

}  // namespace lockstep::plan
