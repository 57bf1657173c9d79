// Descriptor: what a rank asks for in one operation. It travels with the first contact of every
// pair of ranks in every operation and is compared before any data is mixed.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace lockstep::wire {

/// The name that a caller gives an operation, usually its tensor's.
struct Name {
  std::uint64_t hash = 0;       // of the whole name; 0: none was given
  std::array<char, 32> text{};  // for messages: a long one's end, and some digits of the hash

  Name() = default;
  explicit Name(std::string_view whole) noexcept;
  [[nodiscard]] std::string_view view() const noexcept {
    return {text.data(), strnlen(text.data(), text.size())};
  }
  friend bool operator==(const Name&, const Name&) = default;
};

/// Fixed size, no padding, little endian on the wire. Enumerations are the numbers of plan::Kind,
/// lockstep::Op and lockstep::DType; 255 where the kind has none.
struct Descriptor {
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;       // elements
  std::uint64_t shape_hash = 0;  // of shape and segments; 0: not given
  std::uint64_t plan_hash = 0;   // algorithm and counts: what must agree but is not the user's word
  std::int32_t root = -1;
  std::int32_t to = -1;
  std::uint8_t kind = 255;
  std::uint8_t op = 255;
  std::uint8_t dtype = 255;
  std::uint8_t wire = 0;    // lockstep::DType of what travels; 0: the elements' own
  std::uint32_t group = 0;  // subgroup the operation belongs to
  Name name;
  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};
static_assert(sizeof(Descriptor) == 88 && std::is_trivially_copyable_v<Descriptor> &&
              std::has_unique_object_representations_v<Descriptor>);

/// 64 bits that differ (but for accident) when the descriptors differ in anything.
std::uint64_t fingerprint(const Descriptor& descriptor) noexcept;

/// "all_reduce sum float32[1024] \"conv1.weight\"", for tables and messages.
std::string describe(const Descriptor& descriptor);

}  // namespace lockstep::wire
