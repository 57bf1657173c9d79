// ClientGreeting: what a client of TLS 1.3 says first, and whether it knows the key. Read without
// OpenSSL, which takes 72 KiB to find out.
//
// A greeting of ours is one record with one message, a ClientHello. Its last extension holds the
// name of the client and its binder, a code that only who knows the key can make of all the bytes
// before it (RFC 8446, 4.2.11.2).
//
//   const auto more = ClientGreeting::missing(bytes);          // so many are to be read next
//   const auto greeting = ClientGreeting::parse(bytes);        // once none is missing
//   if (greeting && greeting->proves(key_of(greeting->identity()).bytes())) ...
//
// The rest (versions, ciphers, groups) is OpenSSL's to judge: it reads the same bytes afterwards. A
// client that offers several names is known by the first.
//
// No length is believed. Thread rule: a value; borrows the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "transport/keys.h"

namespace lockstep::transport {

class ClientGreeting {
 public:
  static constexpr std::size_t kMaxBytes = 2048;
  using Binder = std::array<std::byte, 32>;

  /// How many bytes to read next, behind those of a record that are here: 0 if it is whole, and
  /// nothing if it will be no greeting. Never more than a greeting has.
  static std::optional<std::size_t> missing(std::span<const std::byte> start) noexcept;
  /// Nothing if the record, with its header, is no greeting with a name.
  static std::optional<ClientGreeting> parse(std::span<const std::byte> record) noexcept;

  /// As it was sent: any bytes, at least one.
  [[nodiscard]] std::string_view identity() const noexcept { return identity_; }
  [[nodiscard]] const Binder& binder() const noexcept { return binder_; }
  /// Whether who made the binder knows that key. Takes the same time for every key. std::bad_alloc if
  /// OpenSSL has no memory left.
  [[nodiscard]] bool proves(std::span<const std::byte, PairKey::kBytes> key) const;

 private:
  ClientGreeting() = default;

  std::string_view identity_;
  std::span<const std::byte> bound_;  // what the binder is made of
  Binder binder_{};
};

}  // namespace lockstep::transport
