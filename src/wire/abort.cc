#include "wire/abort.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <utility>

#include "base/printable.h"
#include "wire/bytes.h"
#include "wire/frame.h"

namespace lockstep::wire {
namespace {

// standing 1, kind 1, code 1, reserved 1, origin 4, culprits 2, message 2, then both.
constexpr std::size_t kFixed = 12;
constexpr std::size_t kMaxCulprits = 256;

constexpr std::uint8_t kLastKind = static_cast<std::uint8_t>(ErrorKind::internal);
constexpr std::uint8_t kLastCode = static_cast<std::uint8_t>(Code::unauthenticated);

Status bad(std::string what) {
  return {ErrorKind::data_error, Code::data_loss, "unreadable abort frame: " + std::move(what)};
}

}  // namespace

std::vector<std::byte> encode(const Abort& abort) {
  assert(!abort.cause.ok());
  const auto& culprits = abort.cause.culprits();
  const std::string& message = abort.cause.message();
  const std::size_t listed = std::min(culprits.size(), kMaxCulprits);
  const std::size_t text = std::min(message.size(), kMaxControlPayload - kFixed - listed * 4);
  std::vector<std::byte> payload(kFixed + listed * 4 + text);
  std::byte* at = payload.data();
  put(at, abort.standing);
  put(at + 1, static_cast<std::uint8_t>(abort.cause.kind()));
  put(at + 2, static_cast<std::uint8_t>(abort.cause.code()));
  put(at + 4, abort.origin);
  put(at + 8, static_cast<std::uint16_t>(listed));
  put(at + 10, static_cast<std::uint16_t>(text));
  at += kFixed;
  for (std::size_t i = 0; i < listed; ++i, at += 4) {
    put(at, static_cast<std::int32_t>(culprits[i]));
  }
  std::memcpy(at, message.data(), text);
  return payload;
}

Status decode(std::span<const std::byte> payload, int size, Abort& abort) {
  if (payload.size() < kFixed) return bad(fmt::format("only {} bytes", payload.size()));
  const std::byte* at = payload.data();
  const auto standing = get<std::uint8_t>(at);
  const auto kind = get<std::uint8_t>(at + 1);
  const auto code = get<std::uint8_t>(at + 2);
  const auto origin = get<std::int32_t>(at + 4);
  const std::size_t listed = get<std::uint16_t>(at + 8);
  const std::size_t text = get<std::uint16_t>(at + 10);
  if (standing > static_cast<std::uint8_t>(Standing::verdict)) {
    return bad(fmt::format("standing {}", standing));
  }
  if (kind > kLastKind) return bad(fmt::format("kind {}", kind));
  if (code == 0 || code > kLastCode) return bad(fmt::format("code {}", code));
  if (origin < 0 || origin >= size) return bad(fmt::format("origin {}", origin));
  if (listed > kMaxCulprits || payload.size() != kFixed + listed * 4 + text) {
    return bad(
        fmt::format("{} culprits and {} bytes of text in {} bytes", listed, text, payload.size()));
  }
  at += kFixed;
  std::vector<int> culprits;
  for (std::size_t i = 0; i < listed; ++i, at += 4) {
    const auto rank = get<std::int32_t>(at);
    if (rank < 0 || rank >= size) return bad(fmt::format("culprit {}", rank));
    culprits.push_back(rank);
  }
  abort.standing = static_cast<Standing>(standing);
  abort.origin = origin;
  abort.cause =
      Status(static_cast<ErrorKind>(kind), static_cast<Code>(code),
             printable_lines({reinterpret_cast<const char*>(at), text}), std::move(culprits));
  return {};
}

}  // namespace lockstep::wire
