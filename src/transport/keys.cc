#include "transport/keys.h"

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <new>

#include "lockstep/error.h"
#include "sys/os_error.h"
#include "sys/private_file.h"
#include "transport/openssl_memory.h"
#include "transport/wiped.h"

namespace lockstep::transport {
namespace {

constexpr std::size_t kBytes = JobKey::kBytes;
constexpr std::size_t kHexDigits = 2 * kBytes;
constexpr std::size_t kBase64Digits = (8 * kBytes + 5) / 6;  // without the '=' at the end

using Raw = Wiped<kBytes>;

[[noreturn]] void refuse(std::string_view source, std::string_view what) {
  throw ConfigError(
      fmt::format("{} {}; a key is 64 hexadecimal digits: make one with openssl rand "
                  "-hex 32",
                  source, what));
}

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

std::optional<unsigned> base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return std::nullopt;
}

/// Digits of `width` bits each, first one highest. False if a character is no digit or the bits
/// left over at the end are not zero.
template <class Digit>
bool decode(std::string_view text, unsigned width, Digit digit, Raw& into) {
  std::size_t at = 0;
  unsigned held = 0;
  unsigned bits = 0;
  for (const char c : text) {
    const std::optional<unsigned> value = digit(c);
    if (!value) return false;
    held = held << width | *value;
    bits += width;
    if (bits >= 8) {
      bits -= 8;
      into.bytes[at++] = static_cast<std::byte>(held >> bits);
      held &= (1U << bits) - 1;
    }
  }
  return held == 0 && at == kBytes;
}

JobKey checked(const Raw& raw, std::string_view source) {
  const auto is_first = [&](std::byte b) { return b == raw.bytes[0]; };
  if (std::all_of(raw.bytes.begin(), raw.bytes.end(), is_first)) {
    refuse(source, "is the same byte over and over, which anybody can guess");
  }
  return JobKey(raw.bytes);
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool is_text(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](char c) { return (c >= ' ' && c <= '~') || is_space(c); });
}

std::string_view to_string(Plane plane) { return plane == Plane::control ? "control" : "data"; }

/// What the key is bound to beside the job.
std::string info(const Pair& pair) {
  return fmt::format("lockstep1|{}|client={}|server={}|{}", pair.generation, pair.client,
                     pair.server, to_string(pair.plane));
}

/// Takes `prefix` and then a number off the front of `text`.
template <class Number>
bool take(std::string_view& text, std::string_view prefix, Number& number) {
  if (!text.starts_with(prefix)) return false;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + prefix.size(), end, number);
  text = std::string_view(rest, static_cast<std::size_t>(end - rest));
  return error == std::errc();
}

struct FreeKdf {
  void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
  void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
};

}  // namespace

template <class Use>
Secret<Use>::Secret(std::span<const std::byte, kBytes> bytes) {
  std::copy(bytes.begin(), bytes.end(), page_.bytes().begin());
}

template <class Use>
bool Secret<Use>::equals(const Secret& other) const noexcept {
  return CRYPTO_memcmp(bytes().data(), other.bytes().data(), kBytes) == 0;
}

template class Secret<JobKeyUse>;
template class Secret<PairKeyUse>;

JobKey JobKey::from_text(std::string_view text, std::string_view source) {
  text = trimmed(text);
  if (text.empty()) refuse(source, "is empty");
  Raw raw;
  if (text.size() == kHexDigits) {
    if (!decode(text, 4, hex_digit, raw)) {
      refuse(source, "has the length of a key, but characters that are no hexadecimal digits");
    }
    return checked(raw, source);
  }
  std::string_view digits = text;
  if (digits.ends_with('=')) digits.remove_suffix(1);
  if (digits.size() != kBase64Digits) {
    refuse(source, fmt::format("has {} characters, which is the length of no key", text.size()));
  }
  if (!decode(digits, 6, base64_digit, raw)) {
    refuse(source, "has the length of a key in base64, but does not decode to 32 bytes");
  }
  return checked(raw, source);
}

JobKey JobKey::from_file(const std::string& path) {
  const std::string source = "the key file " + path;
  Wiped<128> content;  // 64 digits and some white space
  const std::size_t size = sys::read_private_file(path, content.bytes);
  const std::string_view text(reinterpret_cast<const char*>(content.bytes.data()), size);
  // Chance makes 32 printable bytes once in 10^13: it is a password or half a key.
  if (size != kBytes || is_text(text)) return from_text(text, source);
  Raw raw;
  std::copy_n(content.bytes.begin(), kBytes, raw.bytes.begin());
  return checked(raw, source);
}

JobKey JobKey::random() {
  Raw raw;
  // Up to 256 bytes come whole and without interruption once the system's pool is filled.
  const ssize_t got =
      sys::retry_on_signal([&] { return ::getrandom(raw.bytes.data(), kBytes, 0); });
  if (got != static_cast<ssize_t>(kBytes)) raise(sys::os_error("cannot make a random key", errno));
  return JobKey(raw.bytes);
}

std::string JobKey::to_text() const {
  std::string text;
  text.reserve(kHexDigits);
  for (const std::byte b : bytes()) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(b) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

std::string Pair::identity() const {
  if (job.size() > kMaxJob) {
    throw InvalidUsage(
        fmt::format("the job's name has {} bytes; at most {} are allowed", job.size(), kMaxJob));
  }
  return info(*this) + "|" + job;
}

std::optional<Pair> Pair::parse(std::string_view identity) {
  Pair pair;
  std::string_view rest = identity;
  if (!take(rest, "lockstep1|", pair.generation) || !take(rest, "|client=", pair.client) ||
      !take(rest, "|server=", pair.server)) {
    return std::nullopt;
  }
  pair.plane = rest.starts_with("|data|") ? Plane::data : Plane::control;
  const std::size_t job = rest.find('|', 1);
  if (job == std::string_view::npos || rest.size() - job - 1 > kMaxJob) return std::nullopt;
  pair.job = rest.substr(job + 1);
  // One spelling only: no leading zeros, no other planes.
  if (pair.client < 0 || pair.server < 0 || pair.identity() != identity) return std::nullopt;
  return pair;
}

PairKey derive(const JobKey& key, const Pair& pair) {
  ERR_clear_error();
  const std::unique_ptr<EVP_KDF, FreeKdf> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const std::unique_ptr<EVP_KDF_CTX, FreeKdf> context(kdf ? EVP_KDF_CTX_new(kdf.get()) : nullptr);
  std::string digest = "SHA256";
  std::string salt = pair.job;
  std::string what = info(pair);
  Raw secret;
  std::copy(key.bytes().begin(), key.bytes().end(), secret.bytes.begin());
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret.bytes.data(), kBytes),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt.data(), salt.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, what.data(), what.size()),
      OSSL_PARAM_construct_end()};
  Raw derived;
  auto* out = reinterpret_cast<unsigned char*>(derived.bytes.data());
  if (!context || EVP_KDF_derive(context.get(), out, kBytes, parameters) != 1) {
    if (openssl_lacked_memory()) throw std::bad_alloc();
    throw Unsupported(
        "this OpenSSL has no HKDF-SHA256: check its configuration (openssl list "
        "-kdf-algorithms)");
  }
  return PairKey(derived.bytes);
}

}  // namespace lockstep::transport
