#include "coll/operation.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <optional>

#include "base/inline_vector.h"
#include "kernel/reduce.h"
#include "transport/damaged.h"

namespace lockstep::coll {
namespace {

using plan::Buffer;
using plan::Instruction;
using plan::Place;
using transport::kNobody;
using transport::Link;
using transport::Pieces;

/// Walks a region element by element range: at any moment a pointer and how far memory is
/// contiguous.
class Cursor {
 public:
  /// The caller's memory: a list of pieces.
  Cursor(const Pieces& buffer, std::uint64_t offset, std::size_t width)
      : piece_(buffer.pieces.data()), last_(piece_ + buffer.pieces.size()), width_(width) {
    if (buffer.pieces.size() > 1) {
      piece_ = std::upper_bound(
          piece_, last_, offset,
          [](std::uint64_t element, const Pieces::Piece& piece) { return element < piece.end; });
    }
    data_ = piece_->data + (offset - piece_->begin) * width_;
    left_ = piece_->end - offset;
  }
  /// The engine's own memory: flat.
  Cursor(std::byte* base, std::uint64_t offset, std::size_t width)
      : data_(base + offset * width), left_(UINT64_MAX), width_(width) {}

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t contiguous() const noexcept { return left_; }

  void advance(std::uint64_t elements) noexcept {
    data_ += elements * width_;
    left_ -= elements;
    while (left_ == 0 && piece_ + 1 < last_) {
      ++piece_;
      data_ = piece_->data;
      left_ = piece_->end - piece_->begin;
    }
  }

 private:
  const Pieces::Piece* piece_ = nullptr;
  const Pieces::Piece* last_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t left_ = 0;
  std::size_t width_;
};

std::size_t width_of(const Bindings& bindings, Buffer buffer) noexcept {
  return size_of(buffer == Buffer::partial ? accumulator_of(bindings.dtype) : bindings.dtype);
}

kernel::Form form_of(Buffer buffer) noexcept {
  return buffer == Buffer::partial ? kernel::Form::partial : kernel::Form::value;
}

/// A peer's buffer. What it shows of it may be damaged, so it must have all that is asked for.
const Pieces& theirs(const Place& place, std::uint64_t count, Link& link) {
  const transport::Exposure& shown = link.exposed(place.rank);
  const Pieces* buffer = &shown.output;
  if (place.buffer == Buffer::input) {
    buffer = static_cast<std::size_t>(place.index) < shown.inputs.size()
                 ? &shown.inputs[place.index]
                 : nullptr;
  }
  if (buffer == nullptr || buffer->pieces.empty() ||
      buffer->pieces.back().end < place.offset + count) {
    transport::refuse_damaged(link, place.rank, "shows fewer elements than it takes part with");
  }
  return *buffer;
}

/// `count` elements of a place, from its element `first` on.
Cursor locate(Place place, std::uint64_t first, std::uint64_t count, const Bindings& bindings,
              Link& link) {
  place.offset += first;
  const std::size_t width = width_of(bindings, place.buffer);
  const bool mine = place.rank == link.rank();
  switch (place.buffer) {
    case Buffer::input:
      return {mine ? bindings.inputs[place.index] : theirs(place, count, link), place.offset,
              width};
    case Buffer::output:
      return {mine ? bindings.output : theirs(place, count, link), place.offset, width};
    case Buffer::scratch:
      return {bindings.scratch, place.offset, width};
    case Buffer::partial:
      return {bindings.partial, place.offset, width};
    case Buffer::slot:
      break;
  }
  return {link.slot(place.rank), place.offset, width};
}

/// Bytes that an instruction moves between this rank and others.
std::uint64_t travelling(const plan::Plan& plan, const Instruction& instruction,
                         const Bindings& bindings, int rank) {
  const bool message =
      instruction.verb == plan::Verb::send || instruction.verb == plan::Verb::receive;
  std::uint64_t bytes = 0;
  const auto add = [&](std::span<const Place> places) {
    for (const Place& place : places) {
      if (!message && place.rank == rank) continue;
      bytes += instruction.count * width_of(bindings, place.buffer);
    }
  };
  add(plan.sources_of(instruction));
  add(plan.targets_of(instruction));
  return bytes;
}

/// Shorter copies are still in the cache when the peer wants them.
constexpr std::size_t kLeastAroundCache = 16 << 10;

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes,
                plan::SlotStores stores) noexcept {
  if (stores == plan::SlotStores::cached || bytes < kLeastAroundCache) {
    std::memcpy(to, from, bytes);
  } else {
    kernel::copy_around_cache(to, from, bytes);
  }
}

/// Groups of up to so many replicas need no allocation to add up.
constexpr std::size_t kUsual = 16;

/// Bytes of each buffer that one Touch lasts for: a fraction of a millisecond.
constexpr std::size_t kTouched = std::size_t{1} << 20;

}  // namespace

void Operation::start(const plan::Plan& plan, const Bindings& bindings,
                      const wire::Descriptor& descriptor, const transport::Exposure& exposure) {
  plan_ = &plan;
  bindings_ = &bindings;
  descriptor_ = &descriptor;
  exposure_ = &exposure;
  begun_ = false;
  next_ = 0;
  moved_ = 0;
  waiting_for_ = kNobody;
}

void Operation::resume(const plan::Plan& plan, const Bindings& bindings,
                       const wire::Descriptor& descriptor, const transport::Exposure& exposure,
                       std::size_t done) {
  start(plan, bindings, descriptor, exposure);
  begun_ = true;
  next_ = done;
}

State Operation::poll(Link& link, int budget) {
  waiting_for_ = kNobody;
  if (link.failed()) return State::failed;
  if (!begun_) {
    waiting_for_ =
        link.begin(*descriptor_, *exposure_, plan_->slot_most * size_of(bindings_->dtype));
    if (waiting_for_ != kNobody) return State::pending;
    begun_ = true;
  }
  const std::size_t length = plan_->code.size();
  while (next_ < length) {
    if (budget-- == 0) return State::pending;
    const Instruction& instruction = plan_->code[next_];
    if (!execute(instruction, link)) {
      waiting_for_ = instruction.peer;
      return link.failed() ? State::failed : State::pending;
    }
    ++next_;
    ++progress_;
    moved_ = 0;
  }
  waiting_for_ = link.end();
  if (waiting_for_ == kNobody) return State::done;
  return link.failed() ? State::failed : State::pending;
}

bool Operation::execute(const Instruction& instruction, Link& link) {
  switch (instruction.verb) {
    case plan::Verb::send:
      send(instruction, link);
      return true;
    case plan::Verb::receive:
      return receive(instruction, link);
    case plan::Verb::drain:
      return link.drained(instruction.peer);
    case plan::Verb::publish:
      link.publish(instruction.stage);
      return true;
    case plan::Verb::await:
      return link.reached(instruction.peer, instruction.stage);
    case plan::Verb::reduce:
    case plan::Verb::copy:
      return compute(instruction, link);
  }
  return true;
}

Moved Operation::moved(const Link& link) const {
  Moved moved;
  std::uint64_t queued = 0;
  for (std::size_t i = 0; i < plan_->code.size(); ++i) {
    const Instruction& instruction = plan_->code[i];
    const std::uint64_t bytes = travelling(*plan_, instruction, *bindings_, link.rank());
    moved.total += bytes;
    if (i >= next_) continue;
    moved.done += bytes;
    if (instruction.verb == plan::Verb::send) queued += bytes;
  }
  moved.done += moved_;
  moved.done -= std::min(queued, link.unsent());
  return moved;
}

bool Operation::compute(const Instruction& instruction, Link& link) {
  // Slots belong to the group and outlive every operation.
  if (plan_->slot_count > 0) {
    compute(instruction, {0, instruction.count}, link);
    return true;
  }
  // Other buffers are their callers', who wait for the end of a Touch before they take them back.
  const std::uint64_t most = kTouched / size_of(bindings_->dtype);
  for (Range part{0, 0}; part.first < instruction.count; part.first += part.count) {
    part.count = std::min(most, instruction.count - part.first);
    const transport::Touch touch(link);
    if (!touch.allowed()) return false;
    compute(instruction, part, link);
  }
  return true;
}

void Operation::compute(const Instruction& instruction, Range range, Link& link) {
  if (instruction.verb == plan::Verb::reduce) {
    reduce(instruction, range, link);
  } else {
    copy(instruction, range, link);
  }
}

void Operation::send(const Instruction& instruction, Link& link) {
  if (instruction.count == 0) return;
  const Place& place = plan_->sources_of(instruction)[0];
  const std::size_t width = width_of(*bindings_, place.buffer);
  Cursor from = locate(place, 0, instruction.count, *bindings_, link);
  for (std::uint64_t left = instruction.count; left > 0;) {
    const std::uint64_t now = std::min(left, from.contiguous());
    link.send(instruction.peer, {from.data(), now * width});
    queued_ += now * width;
    from.advance(now);
    left -= now;
  }
}

bool Operation::receive(const Instruction& instruction, Link& link) {
  const Place& place = plan_->targets_of(instruction)[0];
  const std::size_t width = width_of(*bindings_, place.buffer);
  const std::uint64_t total = instruction.count * width;
  while (moved_ < total) {
    // A stream may cut within an element: find the element, then step over the bytes it already
    // has.
    const std::uint64_t first = moved_ / width;
    const std::size_t within = moved_ % width;
    const std::uint64_t left = instruction.count - first;
    const Cursor into = locate(place, first, left, *bindings_, link);
    const std::uint64_t room = std::min(left, into.contiguous()) * width - within;
    const std::size_t got = link.receive(instruction.peer, {into.data() + within, room});
    if (got == 0) return false;
    moved_ += got;
    ++progress_;
  }
  return true;
}

bool Operation::reduce_flat(const Instruction& instruction, Range range, Link& link) {
  InlineVector<kernel::Input, kUsual> inputs;
  InlineVector<kernel::Target, kUsual> outputs;
  for (const Place& place : plan_->sources_of(instruction)) {
    const Cursor at = locate(place, range.first, range.count, *bindings_, link);
    if (at.contiguous() < range.count) return false;
    inputs.push_back({at.data(), form_of(place.buffer)});
  }
  for (const Place& place : plan_->targets_of(instruction)) {
    const Cursor at = locate(place, range.first, range.count, *bindings_, link);
    if (at.contiguous() < range.count) return false;
    outputs.push_back({at.data(), form_of(place.buffer)});
  }
  kernel::reduce({.op = bindings_->op,
                  .dtype = bindings_->dtype,
                  .inputs = inputs.span(),
                  .merges = plan_->merges_of(instruction),
                  .targets = outputs.span(),
                  .count = range.count,
                  .weights = {},
                  .divisor = instruction.finish ? bindings_->divisor : 1,
                  .reuse = kernel::Reuse::soon});
  return true;
}

void Operation::reduce(const Instruction& instruction, Range range, Link& link) {
  if (range.count == 0) return;
  const auto sources = plan_->sources_of(instruction);
  const auto targets = plan_->targets_of(instruction);
  if (reduce_flat(instruction, range, link)) return;
  InlineVector<Cursor, kUsual> from;
  InlineVector<Cursor, kUsual> to;
  for (const Place& place : sources)
    from.push_back(locate(place, range.first, range.count, *bindings_, link));
  for (const Place& place : targets)
    to.push_back(locate(place, range.first, range.count, *bindings_, link));
  for (std::uint64_t left = range.count; left > 0;) {
    std::uint64_t now = left;
    for (const Cursor& cursor : from) now = std::min(now, cursor.contiguous());
    for (const Cursor& cursor : to) now = std::min(now, cursor.contiguous());
    InlineVector<kernel::Input, kUsual> inputs;
    InlineVector<kernel::Target, kUsual> outputs;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      inputs.push_back({from[i].data(), form_of(sources[i].buffer)});
      from[i].advance(now);
    }
    for (std::size_t i = 0; i < targets.size(); ++i) {
      outputs.push_back({to[i].data(), form_of(targets[i].buffer)});
      to[i].advance(now);
    }
    kernel::reduce({.op = bindings_->op,
                    .dtype = bindings_->dtype,
                    .inputs = inputs.span(),
                    .merges = plan_->merges_of(instruction),
                    .targets = outputs.span(),
                    .count = now,
                    .weights = {},
                    .divisor = instruction.finish ? bindings_->divisor : 1,
                    .reuse = kernel::Reuse::soon});
    left -= now;
  }
}

void Operation::copy(const Instruction& instruction, Range range, Link& link) {
  if (range.count == 0) return;
  const Place& source = plan_->sources_of(instruction)[0];
  const std::size_t width = width_of(*bindings_, source.buffer);
  for (const Place& target : plan_->targets_of(instruction)) {
    const plan::SlotStores stores =
        target.buffer == Buffer::slot ? bindings_->slot_stores : plan::SlotStores::cached;
    Cursor from = locate(source, range.first, range.count, *bindings_, link);
    Cursor to = locate(target, range.first, range.count, *bindings_, link);
    for (std::uint64_t left = range.count; left > 0;) {
      const std::uint64_t now = std::min({left, from.contiguous(), to.contiguous()});
      if (from.data() != to.data()) copy_bytes(to.data(), from.data(), now * width, stores);
      from.advance(now);
      to.advance(now);
      left -= now;
    }
  }
}

}  // namespace lockstep::coll
