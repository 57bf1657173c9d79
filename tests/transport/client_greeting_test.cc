// Greetings of OpenSSL's client and others made by hand: which are understood, and which believed.
#include "transport/client_greeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

#include <string>
#include <vector>

#include "tests/transport/tls_wires.h"
#include "transport/tls.h"
#include "transport/used_binders.h"

namespace lockstep::transport {
namespace {

constexpr const char* kWho = "lockstep1|1|client=1|server=0|data|job";

PairKey key_number(unsigned seed) {
  const Bytes bytes = pattern(PairKey::kBytes, seed);
  return PairKey(std::span<const std::byte, PairKey::kBytes>(bytes));
}

Bytes greeting_of(const std::string& who, const PairKey& key) {
  PairWires wires;
  const auto client = TlsClient().connect(std::move(wires.client), who, key);
  (void)client->handshake();
  Bytes bytes(4096);
  bytes.resize(wires.server->read(bytes).bytes);
  return bytes;
}

bool believed(const Bytes& bytes, const PairKey& key) {
  const auto greeting = ClientGreeting::parse(bytes);
  return greeting && greeting->proves(key.bytes());
}

// --- OpenSSL's --------------------------------------------------------------

TEST(ClientGreeting, OpenSslsIsUnderstood) {
  for (const std::string& who : {std::string("x"), std::string(kWho), std::string(256, 'w')}) {
    const Bytes bytes = greeting_of(who, key_number(1));
    const auto greeting = ClientGreeting::parse(bytes);
    ASSERT_TRUE(greeting.has_value());
    EXPECT_EQ(greeting->identity(), who);
    EXPECT_TRUE(greeting->proves(key_number(1).bytes()));
    EXPECT_FALSE(greeting->proves(key_number(2).bytes()));
    EXPECT_TRUE(std::equal(greeting->binder().begin(), greeting->binder().end(), bytes.end() - 32));
  }
}

TEST(ClientGreeting, NoTwoAreTheSame) {
  const Bytes one = greeting_of(kWho, key_number(1));
  const Bytes other = greeting_of(kWho, key_number(1));
  EXPECT_NE(ClientGreeting::parse(one)->binder(), ClientGreeting::parse(other)->binder());
}

TEST(ClientGreeting, APartIsNone) {
  const Bytes whole = greeting_of(kWho, key_number(1));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(ClientGreeting::parse(part).has_value()) << size;
    const auto missing = ClientGreeting::missing(part);
    ASSERT_TRUE(missing.has_value()) << size;
    EXPECT_GT(*missing, 0U) << size;
    EXPECT_LE(*missing, whole.size() - size) << "what lies behind belongs to somebody else";
  }
  EXPECT_EQ(ClientGreeting::missing(whole), 0U);
}

TEST(ClientGreeting, MoreThanOneIsNone) {
  Bytes bytes = greeting_of(kWho, key_number(1));
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(ClientGreeting::missing(bytes).has_value());
  EXPECT_FALSE(ClientGreeting::parse(bytes).has_value());
}

TEST(ClientGreeting, NoChangedByteIsBelieved) {
  const PairKey key = key_number(1);
  const Bytes whole = greeting_of(kWho, key);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int change = 1; change < 256; ++change) {
      Bytes bytes = whole;
      bytes[at] ^= static_cast<std::byte>(change);
      // TLS ignores the record's version; two are in use.
      if (at == 2 && bytes[at] == std::byte{3}) continue;
      ASSERT_FALSE(believed(bytes, key)) << "byte " << at << " changed by " << change;
    }
  }
}

TEST(ClientGreeting, NoLengthIsBelieved) {
  const PairKey key = key_number(1);
  const Bytes whole = greeting_of(kWho, key);
  for (std::size_t at = 0; at + 3 <= whole.size(); ++at) {
    for (const int value : {0, 0x7f, 0xff}) {
      for (const std::ptrdiff_t width : {2, 3}) {
        Bytes bytes = whole;
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), width,
                    static_cast<std::byte>(value));
        EXPECT_TRUE(bytes == whole || !believed(bytes, key)) << at << " " << value;
      }
    }
  }
}

// --- made by hand -----------------------------------------------------------

void put(Bytes& to, std::size_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) to.push_back(static_cast<std::byte>(value >> (8 * i)));
}
void put(Bytes& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}
void put_list(Bytes& to, std::span<const std::byte> bytes, int length_bytes) {
  put(to, bytes.size(), length_bytes);
  put(to, bytes);
}

Bytes extension(std::size_t type, const Bytes& content) {
  Bytes bytes;
  put(bytes, type, 2);
  put_list(bytes, content, 2);
  return bytes;
}

/// HKDF-Expand-Label by OpenSSL.
Bytes expand(Bytes secret, std::string label, Bytes context) {
  EVP_KDF* kdf = EVP_KDF_fetch(nullptr, "TLS13-KDF", nullptr);
  EVP_KDF_CTX* made = EVP_KDF_CTX_new(kdf);
  std::string digest = "SHA256";
  std::string mode = "EXPAND_ONLY";
  std::string prefix = "tls13 ";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_MODE, mode.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_PREFIX, prefix.data(), prefix.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_LABEL, label.data(), label.size()),
      context.empty()
          ? OSSL_PARAM_construct_end()
          : OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_DATA, context.data(), context.size()),
      OSSL_PARAM_construct_end()};
  Bytes out(32);
  EXPECT_EQ(EVP_KDF_derive(made, reinterpret_cast<unsigned char*>(out.data()), 32, parameters), 1);
  EVP_KDF_CTX_free(made);
  EVP_KDF_free(kdf);
  return out;
}

Bytes hmac(const Bytes& key, const Bytes& data) {
  Bytes out(32);
  std::size_t size = 0;
  EXPECT_NE(EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, key.data(), key.size(),
                      reinterpret_cast<const unsigned char*>(data.data()), data.size(),
                      reinterpret_cast<unsigned char*>(out.data()), out.size(), &size),
            nullptr);
  return out;
}

Bytes digest(const Bytes& data) {
  Bytes out(32);
  EXPECT_EQ(EVP_Digest(data.data(), data.size(), reinterpret_cast<unsigned char*>(out.data()),
                       nullptr, EVP_sha256(), nullptr),
            1);
  return out;
}

/// A greeting in which everything can be wrong.
struct Draft {
  std::vector<std::string> identities = {kWho};
  std::vector<std::size_t> binders = {32};  // sizes; the first is right
  Bytes before = extension(43, pattern(3, 1));
  Bytes behind;    // the last extension
  Bytes in_keys;   // at the end of pre_shared_key
  Bytes in_hello;  // at the end of all
  std::size_t type = 41;

  [[nodiscard]] Bytes with_key(const PairKey& key) const {
    const Bytes trial = with_binder(Bytes(32));
    std::size_t kept = trial.size() - 5 - 2 - in_keys.size() - behind.size() - in_hello.size();
    for (const std::size_t size : binders) kept -= 1 + size;
    const Bytes bound(trial.begin() + 5, trial.begin() + 5 + static_cast<std::ptrdiff_t>(kept));
    const Bytes early = hmac(Bytes(32), Bytes(key.bytes().begin(), key.bytes().end()));
    const Bytes finished = expand(expand(early, "ext binder", digest({})), "finished", {});
    return with_binder(hmac(finished, digest(bound)));
  }

  [[nodiscard]] Bytes with_binder(const Bytes& binder) const {
    Bytes names;
    for (const std::string& name : identities) {
      put_list(names, std::as_bytes(std::span(name)), 2);
      put(names, 0, 4);
    }
    Bytes proofs;
    for (std::size_t i = 0; i < binders.size(); ++i) {
      Bytes proof = i == 0 ? binder : pattern(32, static_cast<unsigned>(i));
      proof.resize(binders[i]);
      put_list(proofs, proof, 1);
    }
    Bytes keys;
    put_list(keys, names, 2);
    put_list(keys, proofs, 2);
    put(keys, in_keys);
    Bytes extensions = before;
    put(extensions, extension(type, keys));
    put(extensions, behind);

    Bytes hello;
    put(hello, 0x0303, 2);
    put(hello, pattern(32, 7));
    put_list(hello, {}, 1);
    put_list(hello, bytes_of(std::string_view("\x13\x01", 2)), 2);
    put_list(hello, bytes_of(std::string_view("\0", 1)), 1);
    put_list(hello, extensions, 2);
    put(hello, in_hello);
    Bytes message;
    put(message, 1, 1);
    put_list(message, hello, 3);
    Bytes record;
    put(record, 22, 1);
    put(record, 0x0301, 2);
    put_list(record, message, 2);
    return record;
  }
};

TEST(ClientGreeting, OneMadeByHandIsUnderstood) {
  const Draft draft;
  EXPECT_TRUE(believed(draft.with_key(key_number(1)), key_number(1)));
  EXPECT_FALSE(believed(draft.with_key(key_number(2)), key_number(1)));
  EXPECT_FALSE(believed(draft.with_binder(Bytes(32)), key_number(1)));
}

TEST(ClientGreeting, TheFirstOfSeveralNamesCounts) {
  Draft draft;
  draft.identities = {kWho, "another", "and another"};
  draft.binders = {32, 32, 48};
  const Bytes bytes = draft.with_key(key_number(1));
  EXPECT_TRUE(believed(bytes, key_number(1)));
  EXPECT_EQ(ClientGreeting::parse(bytes)->identity(), kWho);
  draft.identities = {"another", kWho, "and another"};
  EXPECT_EQ(ClientGreeting::parse(draft.with_key(key_number(1)))->identity(), "another");
}

TEST(ClientGreeting, ABinderForEveryName) {
  const auto understood = [](std::vector<std::string> names, std::vector<std::size_t> binders) {
    Draft draft;
    draft.identities = std::move(names);
    draft.binders = std::move(binders);
    return ClientGreeting::parse(draft.with_binder(Bytes(32))).has_value();
  };
  EXPECT_TRUE(understood({"a", "b"}, {32, 32}));
  EXPECT_FALSE(understood({"a", "b"}, {32}));
  EXPECT_FALSE(understood({"a"}, {32, 32}));
  EXPECT_FALSE(understood({}, {}));
  EXPECT_FALSE(understood({}, {32}));
  EXPECT_FALSE(understood({"a"}, {}));
  EXPECT_FALSE(understood({"a"}, {31}));
  EXPECT_FALSE(understood({"a"}, {0}));
  EXPECT_FALSE(understood({"a"}, {48})) << "of SHA-384";
  EXPECT_FALSE(understood({"a", "b"}, {32, 31}));
  EXPECT_FALSE(understood({""}, {32}));
  EXPECT_FALSE(understood({"a", ""}, {32, 32}));
}

TEST(ClientGreeting, TheKeysAreTheLastExtension) {
  const PairKey key = key_number(1);
  Draft draft;
  draft.before = {};
  EXPECT_TRUE(believed(draft.with_key(key), key)) << "others are not asked for";
  draft.before = extension(43, {});
  put(draft.before, extension(51, pattern(40, 2)));
  EXPECT_TRUE(believed(draft.with_key(key), key));
  draft.before = extension(41, {});
  EXPECT_FALSE(believed(draft.with_key(key), key)) << "twice";
  draft = {};
  draft.behind = extension(43, {});
  EXPECT_FALSE(believed(draft.with_key(key), key));
  draft = {};
  draft.type = 42;
  EXPECT_FALSE(believed(draft.with_key(key), key)) << "none";
}

TEST(ClientGreeting, NothingIsLeftOver) {
  const PairKey key = key_number(1);
  for (Bytes Draft::*where : {&Draft::behind, &Draft::in_keys, &Draft::in_hello}) {
    for (std::size_t size = 1; size <= 8; ++size) {
      Draft draft;
      draft.*where = Bytes(size);
      EXPECT_FALSE(believed(draft.with_key(key), key)) << size;
    }
  }
}

TEST(ClientGreeting, TheLongest) {
  const PairKey key = key_number(1);
  Draft draft;
  const std::size_t others = draft.with_binder(Bytes(32)).size() - draft.before.size();
  draft.before = extension(21, Bytes(ClientGreeting::kMaxBytes - others - 4));
  Bytes bytes = draft.with_key(key);
  EXPECT_EQ(bytes.size(), ClientGreeting::kMaxBytes);
  EXPECT_TRUE(believed(bytes, key));
  draft.before = extension(21, Bytes(ClientGreeting::kMaxBytes - others - 3));
  bytes = draft.with_key(key);
  EXPECT_FALSE(believed(bytes, key));
  EXPECT_FALSE(ClientGreeting::missing(std::span(bytes).first(9)).has_value()) << "seen at once";
}

// --- repetitions ------------------------------------------------------------

TEST(UsedBinders, NoneIsUsedTwiceWhileItIsRemembered) {
  const auto number = [](std::size_t i) {
    ClientGreeting::Binder binder{};
    binder[0] = static_cast<std::byte>(i);
    binder[31] = static_cast<std::byte>(i >> 8);
    return binder;
  };
  UsedBinders used;
  for (std::size_t i = 0; i < UsedBinders::kMost; ++i) EXPECT_TRUE(used.enter(number(i)));
  for (std::size_t i = 0; i < UsedBinders::kMost; ++i) EXPECT_FALSE(used.enter(number(i)));
  EXPECT_TRUE(used.enter(number(UsedBinders::kMost)));
  EXPECT_FALSE(used.enter(number(UsedBinders::kMost)));
  EXPECT_FALSE(used.enter(number(1)));
  EXPECT_TRUE(used.enter(number(0))) << "the oldest is forgotten";
  EXPECT_TRUE(used.enter(number(1))) << "then the next";
}

}  // namespace
}  // namespace lockstep::transport
