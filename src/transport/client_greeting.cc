#include "transport/client_greeting.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <new>
#include <utility>

#include "transport/wiped.h"

namespace lockstep::transport {
namespace {

using View = std::span<const std::byte>;
using Hash = Wiped<32>;  // of SHA-256

constexpr std::size_t kRecordHeader = 5;
constexpr std::size_t kMessageHeader = 4;
constexpr std::size_t kHeaders = kRecordHeader + kMessageHeader;
constexpr std::size_t kVersionAndRandom = 2 + 32;
constexpr std::size_t kTicketAge = 4;
constexpr std::size_t kSmallestBinder = 32;
constexpr std::size_t kPreSharedKey = 41;  // the extension
constexpr std::byte kHandshake{22};
constexpr std::byte kClientHello{1};

/// Takes fields from the front. What is not there leaves it failed and empty.
class Fields {
 public:
  explicit Fields(View left) noexcept : left_(left) {}

  View take(std::size_t size) noexcept {
    if (size > left_.size()) {
      failed_ = true;
      left_ = {};
      return {};
    }
    const View taken = left_.first(size);
    left_ = left_.subspan(size);
    return taken;
  }
  std::size_t number(std::size_t bytes) noexcept {
    std::size_t value = 0;
    for (const std::byte b : take(bytes)) value = value << 8 | std::to_integer<std::size_t>(b);
    return value;
  }
  /// Bytes behind their length, which itself has so many.
  View list(std::size_t length_bytes) noexcept { return take(number(length_bytes)); }

  [[nodiscard]] View left() const noexcept { return left_; }
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  /// Everything was there, and nothing else.
  [[nodiscard]] bool complete() const noexcept { return !failed_ && left_.empty(); }

 private:
  View left_;
  bool failed_ = false;
};

// OpenSSL fails these for want of memory only.

void mac(View key, View data, Hash& out) {
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(data.data()), data.size(),
           reinterpret_cast<unsigned char*>(out.bytes.data()), nullptr) == nullptr) {
    throw std::bad_alloc();
  }
}

void digest(View data, Hash& out) {
  if (EVP_Digest(data.data(), data.size(), reinterpret_cast<unsigned char*>(out.bytes.data()),
                 nullptr, EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
}

/// HKDF-Expand-Label to 32 bytes (RFC 8446, 7.1): one round of HKDF-Expand.
void expand(const Hash& secret, std::string_view label, View context, Hash& out) {
  constexpr std::string_view kPrefix = "tls13 ";
  std::array<std::byte, 64> info{};  // the longest here has 53
  std::size_t size = 0;
  const auto put = [&](std::size_t number) { info.at(size++) = static_cast<std::byte>(number); };
  const auto put_all = [&](View bytes) {
    for (const std::byte b : bytes) info.at(size++) = b;
  };
  put(0);
  put(out.bytes.size());
  put(kPrefix.size() + label.size());
  put_all(std::as_bytes(std::span(kPrefix)));
  put_all(std::as_bytes(std::span(label)));
  put(context.size());
  put_all(context);
  put(1);  // the number of the round
  mac(secret.bytes, View(info).first(size), out);
}

}  // namespace

std::optional<std::size_t> ClientGreeting::missing(std::span<const std::byte> start) noexcept {
  // A record of the handshake, not too long ...
  if (!start.empty() && start[0] != kHandshake) return std::nullopt;
  if (start.size() < kHeaders) return kHeaders - start.size();
  Fields fields(start.subspan(1));
  const std::size_t version = fields.number(2);
  const std::size_t record = fields.number(2);
  if ((version != 0x0301 && version != 0x0303) || record > kMaxBytes - kRecordHeader) {
    return std::nullopt;
  }
  // ... that holds a client's greeting and nothing else.
  if (fields.take(1)[0] != kClientHello) return std::nullopt;
  const std::size_t message = fields.number(3);
  if (record < kMessageHeader || message != record - kMessageHeader) return std::nullopt;
  const std::size_t whole = kRecordHeader + record;
  if (start.size() > whole) return std::nullopt;
  return whole - start.size();
}

std::optional<ClientGreeting> ClientGreeting::parse(std::span<const std::byte> record) noexcept {
  if (missing(record) != std::size_t{0}) return std::nullopt;
  const View message = record.subspan(kRecordHeader);
  Fields hello(message.subspan(kMessageHeader));
  hello.take(kVersionAndRandom);
  hello.list(1);  // session
  hello.list(2);  // ciphers
  hello.list(1);  // compression
  Fields extensions(hello.list(2));
  if (!hello.complete()) return std::nullopt;

  std::size_t type = 0;
  View content;
  while (!extensions.left().empty()) {
    if (type == kPreSharedKey) return std::nullopt;  // it must be the last
    type = extensions.number(2);
    content = extensions.list(2);
  }
  if (!extensions.complete() || type != kPreSharedKey) return std::nullopt;

  Fields keys(content);
  Fields identities(keys.list(2));
  ClientGreeting greeting;
  // All that is left of the message now are the binders: each of the ends above is its end.
  greeting.bound_ = message.first(message.size() - keys.left().size());
  Fields binders(keys.list(2));
  if (!keys.complete()) return std::nullopt;
  bool first = true;
  while (!identities.left().empty()) {
    const View identity = identities.list(2);
    identities.take(kTicketAge);
    const View binder = binders.list(1);
    if (identity.empty() || binder.size() < kSmallestBinder) return std::nullopt;
    if (!std::exchange(first, false)) continue;
    if (binder.size() != greeting.binder_.size()) return std::nullopt;
    greeting.identity_ = {reinterpret_cast<const char*>(identity.data()), identity.size()};
    std::copy(binder.begin(), binder.end(), greeting.binder_.begin());
  }
  if (first || !identities.complete() || !binders.complete()) return std::nullopt;
  return greeting;
}

bool ClientGreeting::proves(std::span<const std::byte, PairKey::kBytes> key) const {
  const Hash no_salt;
  Hash nothing;
  Hash early_secret;
  Hash binder_key;
  Hash finished_key;
  Hash transcript;
  Hash expected;
  digest({}, nothing);
  mac(no_salt.bytes, key, early_secret);
  expand(early_secret, "ext binder", nothing.bytes, binder_key);
  expand(binder_key, "finished", {}, finished_key);
  digest(bound_, transcript);
  mac(finished_key.bytes, transcript.bytes, expected);
  return CRYPTO_memcmp(expected.bytes.data(), binder_.data(), binder_.size()) == 0;
}

}  // namespace lockstep::transport
