// Descriptor: what a rank asks for in one operation. It travels with the first contact of every
// pair of ranks in every operation and is compared before any data is mixed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/here.h"

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

/// What the caller asked for in the user's own words, and where: "gather int64[1, 1] at
/// train.cc:88". For messages only: it is never compared.
struct Description {
  std::array<char, 96> text{};

  Description() = default;
  /// The file stands without its folders. Of a long text the end is left out, of a long file name
  /// the beginning. A place without a file is left out.
  Description(std::string_view what, Here here) noexcept;
  [[nodiscard]] bool empty() const noexcept { return text[0] == '\0'; }
  [[nodiscard]] std::string_view view() const noexcept {
    return {text.data(), strnlen(text.data(), text.size())};
  }
  friend bool operator==(const Description&, const Description&) = default;
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
  Description description;

  /// Bytes from the beginning that say everything: the rest of the description is left out.
  [[nodiscard]] std::size_t used_bytes() const noexcept;
  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};
static_assert(sizeof(Descriptor) == 184 && std::is_trivially_copyable_v<Descriptor> &&
              std::has_unique_object_representations_v<Descriptor>);

inline std::size_t Descriptor::used_bytes() const noexcept {
  const std::size_t end = offsetof(Descriptor, description) + description.view().size() + 1;
  return end < sizeof(Descriptor) ? end : sizeof(Descriptor);
}

/// 64 bits that differ (but for accident) when the descriptors differ in anything that is compared.
std::uint64_t fingerprint(const Descriptor& descriptor) noexcept;

/// For tables and messages: the description if there is one, else what the collective is,
/// "all_reduce sum float32[1024] \"conv1.weight\"".
std::string describe(const Descriptor& descriptor);
/// Both of them.
std::string describe_fully(const Descriptor& descriptor);
/// " at train.cc:88", to follow describe(); empty if describe() has the place, or it is unknown.
std::string place_of(const Descriptor& descriptor, Here here);

}  // namespace lockstep::wire
