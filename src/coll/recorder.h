// Recorder: the last operations of a rank, for the report after a failure. Written by the thread
// that drives the operation, readable from any thread at any time; an entry overwritten while it is
// read is left out. It takes memory for the operations there were, some at a time; an operation for
// which there is none left is left out.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "base/atomic_box.h"
#include "lockstep/here.h"
#include "wire/descriptor.h"

namespace lockstep::coll {

class Recorder {
 public:
  static constexpr std::uint64_t kCapacity = 1024;
  enum class Outcome : std::uint32_t { under_way, done, failed };

  Recorder() = default;
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// `algorithm` must live as long as the program (a name from the catalogue).
  void begin(const wire::Descriptor& descriptor, Here here, const char* algorithm) noexcept;
  void end(std::uint64_t sequence, Outcome outcome) noexcept;

  /// Oldest first, one line each; at most `last` of them.
  [[nodiscard]] std::string text(std::uint64_t last = kCapacity) const;

 private:
  struct Origin {
    const char* file;
    const char* algorithm;
  };
  struct alignas(64) Entry {
    std::atomic<std::uint64_t> sequence = 0;  // 0 while being written
    std::atomic<Outcome> outcome = Outcome::under_way;
    std::atomic<std::uint32_t> line = 0;
    AtomicBox<Origin> origin;
    AtomicBox<wire::Descriptor> descriptor;  // the description, if there is one, comes last
  };
  static_assert(2 * sizeof(std::uint64_t) + sizeof(Origin) + sizeof(wire::Descriptor) -
                        sizeof(wire::Description) + sizeof(std::uint64_t) <=
                    128,
                "two lines are written for every call without a description, not three");
  static constexpr std::uint64_t kChunk = 16;  // entries that are made together
  using Chunk = std::array<Entry, kChunk>;

  /// Null: nothing was recorded there yet.
  [[nodiscard]] Entry* find(std::uint64_t sequence) const noexcept;

  std::array<std::atomic<Chunk*>, kCapacity / kChunk> chunks_{};
  std::atomic<std::uint64_t> last_ = 0;
};

}  // namespace lockstep::coll
