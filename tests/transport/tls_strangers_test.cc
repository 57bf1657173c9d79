// Those who speak something else, or TLS in another way than ours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "lockstep/error.h"
#include "tests/transport/tls_wires.h"
#include "transport/tls.h"

namespace lockstep::transport {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using State = TlsConnection::State;

constexpr const char* kWho = "lockstep1|1|client=1|server=0|data|job";

PairKey the_key() {
  const Bytes bytes = pattern(PairKey::kBytes, 1);
  return PairKey(std::span<const std::byte, PairKey::kBytes>(bytes));
}

std::optional<PairKey> know_one(std::string_view who) {
  if (who != kWho) return std::nullopt;
  return the_key();
}

struct FreeSsl {
  void operator()(SSL* p) const { SSL_free(p); }
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509* p) const { X509_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, FreeSsl>;

/// Any use of OpenSSL but ours, on one end of a pair of sockets.
class Foreign {
 public:
  explicit Foreign(const SSL_METHOD* method) : context_(SSL_CTX_new(method)) {}
  SSL_CTX* context() { return context_.get(); }
  void start(sys::Connection& socket) {
    ssl_.reset(SSL_new(context()));
    SSL_set_fd(ssl_.get(), dynamic_cast<sys::PosixConnection&>(socket.underlying()).fd());
  }
  SSL* ssl() { return ssl_.get(); }

 private:
  Owned<SSL_CTX> context_;
  Owned<SSL> ssl_;
};

/// The right key and name, for a foreign client.
int use_right_key(SSL* ssl, const EVP_MD* /*digest*/, const unsigned char** id, std::size_t* size,
                  SSL_SESSION** session) {
  *session = SSL_SESSION_new();
  const auto key = the_key();
  // The cipher that this client offers first.
  const SSL_CIPHER* cipher = sk_SSL_CIPHER_value(SSL_get_ciphers(ssl), 0);
  SSL_SESSION_set1_master_key(*session, reinterpret_cast<const unsigned char*>(key.bytes().data()),
                              PairKey::kBytes);
  SSL_SESSION_set_cipher(*session, cipher);
  SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
  *id = reinterpret_cast<const unsigned char*>(kWho);
  *size = std::string_view(kWho).size();
  return 1;
}

State meet_server(Foreign& stranger, Status* why = nullptr) {
  PairWires wires;
  const auto server = TlsServer(know_one).accept(std::move(wires.server));
  stranger.start(*wires.client);
  for (int turn = 0; turn < 100; ++turn) {
    SSL_connect(stranger.ssl());
    if (server->handshake() != State::pending) break;
  }
  if (why != nullptr) *why = server->error();
  return server->handshake();
}

TEST(TlsStrangers, OneWhoKnowsTheKeyIsNoStranger) {
  Foreign client(TLS_client_method());
  SSL_CTX_set_ciphersuites(client.context(), "TLS_AES_128_GCM_SHA256");
  SSL_CTX_set_psk_use_session_callback(client.context(), use_right_key);
  EXPECT_EQ(meet_server(client), State::done) << "else the refusals below prove nothing";
}

TEST(TlsStrangers, NoOtherCipher) {
  for (const char* cipher : {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}) {
    Foreign client(TLS_client_method());
    SSL_CTX_set_ciphersuites(client.context(), cipher);
    SSL_CTX_set_psk_use_session_callback(client.context(), use_right_key);
    EXPECT_EQ(meet_server(client), State::failed) << cipher;
  }
}

TEST(TlsStrangers, NoOtherGroup) {
  Foreign client(TLS_client_method());
  SSL_CTX_set_ciphersuites(client.context(), "TLS_AES_128_GCM_SHA256");
  SSL_CTX_set_psk_use_session_callback(client.context(), use_right_key);
  SSL_CTX_set1_groups_list(client.context(), "P-256");
  EXPECT_EQ(meet_server(client), State::failed);
}

TEST(TlsStrangers, NoOlderTls) {
  Foreign client(TLS_client_method());
  SSL_CTX_set_max_proto_version(client.context(), TLS1_2_VERSION);
  Status why;
  EXPECT_EQ(meet_server(client, &why), State::failed);
  EXPECT_EQ(why.code(), Code::unauthenticated);
}

TEST(TlsStrangers, AClientWithoutAKeyIsRefused) {
  Foreign client(TLS_client_method());
  Status why;
  EXPECT_EQ(meet_server(client, &why), State::failed);
  EXPECT_EQ(why.code(), Code::unauthenticated);
  EXPECT_THAT(why.message(), AllOf(HasSubstr("pair:client"), HasSubstr("without a key")));
}

/// A certificate proves nothing to us, whoever signed it: the key does.
TEST(TlsStrangers, AServerWithACertificateInsteadOfTheKeyIsRefused) {
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  const Owned<X509> certificate(X509_new());
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -1000);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 100'000);
  X509_set_pubkey(certificate.get(), key.get());
  ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  Foreign server(TLS_server_method());
  ASSERT_EQ(SSL_CTX_use_certificate(server.context(), certificate.get()), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey(server.context(), key.get()), 1);

  PairWires wires;
  server.start(*wires.server);
  const auto client = TlsClient().connect(std::move(wires.client), kWho, the_key());
  for (int turn = 0; turn < 100 && client->handshake() == State::pending; ++turn) {
    SSL_accept(server.ssl());
  }
  EXPECT_EQ(client->handshake(), State::failed);
  EXPECT_EQ(client->error().code(), Code::unauthenticated) << client->error().message();
}

// --- no TLS at all ----------------------------------------------------------

struct Greeted {
  State state = State::pending;
  Status why;
  std::size_t read = 0;
};

Greeted greet(std::span<const std::byte> bytes) {
  PairWires wires;
  Tap::What tap;
  const auto server = TlsServer([](std::string_view) {
                        return std::nullopt;
                      }).accept(std::make_unique<Tap>(std::move(wires.server), tap));
  EXPECT_EQ(wires.client->write(bytes).bytes, bytes.size());
  for (int turn = 0; turn < 10 && server->handshake() == State::pending; ++turn) continue;
  return {server->handshake(), server->error(), tap.read};
}

TEST(TlsStrangers, GarbageIsRefusedAtItsFirstBytes) {
  for (const std::string_view text :
       {std::string_view("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string_view("SSH-2.0-x\r\n"),
        std::string_view("\0\0\0\0\0\0\0\0\0\0\0\0", 12)}) {
    const Greeted result = greet(bytes_of(text));
    EXPECT_EQ(result.state, State::failed) << text;
    EXPECT_EQ(result.why.kind(), ErrorKind::config_error);
    EXPECT_EQ(result.why.code(), Code::unauthenticated);
    EXPECT_THAT(result.why.message(), AllOf(HasSubstr("pair:client"), HasSubstr("without a key")));
    EXPECT_LE(result.read, 9U);
  }
}

TEST(TlsStrangers, NoLengthIsBelieved) {
  const auto refused = [](std::initializer_list<int> header) {
    Bytes bytes;
    for (const int b : header) bytes.push_back(static_cast<std::byte>(b));
    bytes.resize(4000);
    const Greeted result = greet(bytes);
    EXPECT_LE(result.read, TlsConnection::kMaxGreeting);
    return result.state == State::failed && result.read <= 5 + 512;
  };
  EXPECT_TRUE(refused({22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc})) << "a record of 16 KiB";
  EXPECT_TRUE(refused({22, 3, 1, 2, 0, 1, 2, 0, 0})) << "a greeting of 128 KiB in several records";
  EXPECT_TRUE(refused({22, 3, 1, 2, 0, 1, 0, 1, 0})) << "two messages in one record";
  EXPECT_TRUE(refused({22, 3, 1, 2, 0, 2, 0, 1, 0xfc})) << "not a greeting";
  EXPECT_TRUE(refused({23, 3, 3, 2, 0})) << "data";
  EXPECT_TRUE(refused({21, 3, 3, 0, 2, 2, 40})) << "an alert";
}

TEST(TlsStrangers, APatientStrangerGetsNoMoreThanAGreeting) {
  // A greeting of the largest size whose content is nonsense.
  Bytes bytes(100'000, std::byte{0x16});
  const std::size_t record = TlsConnection::kMaxGreeting - 5;
  const std::size_t message = record - 4;
  const int header[] = {22,
                        3,
                        1,
                        static_cast<int>(record >> 8),
                        static_cast<int>(record & 255),
                        1,
                        0,
                        static_cast<int>(message >> 8),
                        static_cast<int>(message & 255)};
  std::transform(std::begin(header), std::end(header), bytes.begin(),
                 [](int b) { return static_cast<std::byte>(b); });
  const Greeted result = greet(bytes);
  EXPECT_EQ(result.state, State::failed);
  EXPECT_LE(result.read, TlsConnection::kMaxGreeting);
}

/// A server of ours that knows the key, greeted by these bytes; it stays the same for all calls.
struct Answer {
  Status why;
  Bytes bytes;
};
Answer answer_to(const TlsServer& server, const Bytes& greeting) {
  PairWires wires;
  const auto called = server.accept(std::move(wires.server));
  EXPECT_EQ(wires.client->write(greeting).bytes, greeting.size());
  (void)called->handshake();
  Answer answer{called->error(), Bytes(4096)};
  answer.bytes.resize(wires.client->read(answer.bytes).bytes);
  return answer;
}

Bytes greeting_of(const std::string& who, const PairKey& key) {
  PairWires wires;
  const auto client = TlsClient().connect(std::move(wires.client), who, key);
  (void)client->handshake();
  Bytes bytes(4096);
  bytes.resize(wires.server->read(bytes).bytes);
  return bytes;
}

TEST(TlsStrangers, ARecordedGreetingIsUsedUp) {
  const TlsServer server(know_one);
  const Bytes recorded = greeting_of(kWho, the_key());
  const Answer first = answer_to(server, recorded);
  EXPECT_TRUE(first.why.ok()) << first.why.message();
  EXPECT_GT(first.bytes.size(), 7U) << "else the refusal below proves nothing";
  const Answer second = answer_to(server, recorded);
  EXPECT_EQ(second.why.code(), Code::unauthenticated);
  EXPECT_THAT(second.why.message(),
              AllOf(HasSubstr("used before"), HasSubstr("pair:client"), HasSubstr(kWho)));
  EXPECT_EQ(second.bytes, answer_to(server, greeting_of("nobody", the_key())).bytes)
      << "the answer does not tell that it was good once";
  EXPECT_TRUE(answer_to(server, greeting_of(kWho, the_key())).why.ok()) << "who knows the key";
}

TEST(TlsStrangers, AKeyThatEverybodyKnowsOpensNothing) {
  const TlsServer server(know_one);
  const std::array<std::byte, PairKey::kBytes> zeroes{};
  for (const char* who : {kWho, "nobody"}) {
    EXPECT_THAT(answer_to(server, greeting_of(who, PairKey(zeroes))).why.message(),
                HasSubstr("wrong key"));
  }
}

TEST(TlsStrangers, TheKeyIsLookedUpOnce) {
  int lookups = 0;
  PairWires wires;
  const auto server = TlsServer([&](std::string_view who) {
                        ++lookups;
                        return know_one(who);
                      }).accept(std::move(wires.server));
  const auto client = TlsClient().connect(std::move(wires.client), kWho, the_key());
  for (int turn = 0; turn < 10 && server->handshake() == State::pending; ++turn) {
    (void)client->handshake();
  }
  EXPECT_EQ(server->handshake(), State::done);
  EXPECT_EQ(lookups, 1);
}

/// So that a client of any OpenSSL takes our answer for what it is.
TEST(TlsStrangers, TheAnswerToAWrongKeyIsOpenSslsOwn) {
  const Bytes other = pattern(PairKey::kBytes, 2);
  const PairKey wrong{std::span<const std::byte, PairKey::kBytes>(other)};
  Foreign foreign(TLS_server_method());
  SSL_CTX_set_psk_find_session_callback(
      foreign.context(), [](SSL* ssl, const unsigned char*, std::size_t, SSL_SESSION** session) {
        const unsigned char cipher[2] = {0x13, 0x01};
        *session = SSL_SESSION_new();
        SSL_SESSION_set1_master_key(*session, cipher, sizeof(cipher));
        SSL_SESSION_set_cipher(*session, SSL_CIPHER_find(ssl, cipher));
        return SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
      });
  PairWires wires;
  foreign.start(*wires.server);
  const Bytes greeting = greeting_of(kWho, wrong);
  EXPECT_EQ(wires.client->write(greeting).bytes, greeting.size());
  SSL_accept(foreign.ssl());
  Bytes theirs(4096);
  theirs.resize(wires.client->read(theirs).bytes);
  EXPECT_EQ(theirs.size(), 7U);
  EXPECT_EQ(answer_to(TlsServer(know_one), greeting).bytes, theirs);
}

TEST(TlsStrangers, AServerThatSpeaksPlainTextIsRefused) {
  PairWires wires;
  const auto client = TlsClient().connect(std::move(wires.client), kWho, the_key());
  (void)client->handshake();
  const Bytes hello = pattern(128, 1);
  EXPECT_EQ(wires.server->write(hello).bytes, hello.size());
  EXPECT_EQ(client->handshake(), State::failed);
  EXPECT_EQ(client->error().code(), Code::unauthenticated);
  EXPECT_THAT(client->error().message(), HasSubstr("pair:server"));
}

TEST(TlsStrangers, ARefusedCallIsTheSystemsError) {
  sys::PosixNetwork network;
  const std::string address = network.listen("127.0.0.1:0")->address();  // free again
  const auto client = TlsClient().connect(network.connect(address), kWho, the_key());
  const auto poller = network.poller();
  poller->watch(*client, sys::Poller::Interest::write);
  while (client->handshake() == State::pending) {
    ASSERT_TRUE(poller->wait(Deadline::after(std::chrono::seconds(10))));
  }
  poller->forget(*client);
  EXPECT_EQ(client->error().kind(), ErrorKind::system_error);
  EXPECT_THAT(client->error().message(), HasSubstr("ECONNREFUSED"));
}

// Beside OpenSSL's own: see transport/tls.h.
static_assert(sizeof(TlsConnection) + TlsConnection::kMaxIdentity <= 1024);

}  // namespace
}  // namespace lockstep::transport
