#include "coll/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

namespace lockstep::coll {

Recorder::~Recorder() {
  for (const auto& chunk : chunks_) delete chunk.load(std::memory_order_relaxed);
}

Recorder::Entry* Recorder::find(std::uint64_t sequence) const noexcept {
  const std::uint64_t index = sequence % kCapacity;
  Chunk* const chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
  return chunk != nullptr ? &(*chunk)[index % kChunk] : nullptr;
}

void Recorder::begin(const wire::Descriptor& descriptor, Here here,
                     const char* algorithm) noexcept {
  Entry* place = find(descriptor.sequence);
  if (place == nullptr) {
    auto* const chunk = new (std::nothrow) Chunk;
    if (chunk == nullptr) return;
    chunks_[descriptor.sequence % kCapacity / kChunk].store(chunk, std::memory_order_release);
    place = find(descriptor.sequence);
  }
  Entry& entry = *place;
  entry.sequence.store(0, std::memory_order_release);
  entry.descriptor.write(descriptor, descriptor.used_bytes());
  entry.origin.write({here.file, algorithm});
  entry.line.store(static_cast<std::uint32_t>(here.line), std::memory_order_release);
  entry.outcome.store(Outcome::under_way, std::memory_order_relaxed);
  entry.sequence.store(descriptor.sequence, std::memory_order_release);
  last_.store(descriptor.sequence, std::memory_order_release);
}

void Recorder::end(std::uint64_t sequence, Outcome outcome) noexcept {
  Entry* const place = find(sequence);
  if (place != nullptr && place->sequence.load(std::memory_order_relaxed) == sequence) {
    place->outcome.store(outcome, std::memory_order_relaxed);
  }
}

std::string Recorder::text(std::uint64_t last) const {
  constexpr const char* kOutcomes[] = {"under way", "done", "failed"};
  const std::uint64_t newest = last_.load(std::memory_order_acquire);
  const std::uint64_t wanted = std::min({last, kCapacity, newest});
  std::string lines;
  for (std::uint64_t sequence = newest - wanted + 1; sequence <= newest; ++sequence) {
    const Entry* const place = find(sequence);
    if (place == nullptr) continue;
    const Entry& entry = *place;
    if (entry.sequence.load(std::memory_order_acquire) != sequence) continue;
    const wire::Descriptor descriptor = entry.descriptor.read();
    const Origin origin = entry.origin.read();
    const auto line = static_cast<int>(entry.line.load(std::memory_order_acquire));
    const Outcome outcome = entry.outcome.load(std::memory_order_relaxed);
    // The boxes read with acquire, so a rewrite that they have seen a part of shows here.
    if (entry.sequence.load(std::memory_order_relaxed) != sequence) continue;
    lines +=
        fmt::format("{:>6} {:<9} {} by {}{}\n", sequence,
                    kOutcomes[static_cast<std::size_t>(outcome)], wire::describe_fully(descriptor),
                    origin.algorithm, wire::place_of(descriptor, {origin.file, line}));
  }
  return lines;
}

}  // namespace lockstep::coll
