// TLS over a connection: both ends prove that they know a shared key, then everything is encrypted.
//
// TLS 1.3 with an external pre-shared key and X25519, cipher TLS_AES_128_GCM_SHA256 and nothing
// else: no certificates, no tickets, no resumption, no early data. A TlsConnection owns the plain
// connection and is one itself, so links and pollers take either.
//
//   TlsServer server([&](std::string_view who) { return key_of(who); });
//   auto connection = server.accept(listener->accept());
//   poller->watch(*connection, Poller::Interest::read);
//   while (connection->handshake() == TlsConnection::State::pending) {
//     poller->watch(*connection, connection->wants_write() ? Interest::write : Interest::read);
//     if (!poller->wait(deadline)) ...
//   }
//   if (connection->handshake() == State::failed) log(connection->error());
//   connection->identity();                                 // who it is
//
// A client introduces itself by an identity, sent in clear; the server looks up the key that goes
// with it. A stranger learns nothing from the answer: an unknown identity fails the way a wrong key
// does, and no more than kMaxGreeting bytes are taken from either.
//
// Memory: a server keeps less than 1 KiB for a caller, and kMaxGreeting bytes from the first one of
// his greeting on, until that is whole and has shown that he knows the key
// (transport/client_greeting.h). Only then comes OpenSSL, and so it does for a client at once: 3.0
// takes 8 KiB for a connection, 64 KiB more from the first call of handshake() to its end, then 64
// KiB for reading and 16 KiB for writing once data moves. A client's key has a page until it is
// used.
//
// A greeting that a server has believed is not believed again: who repeats one has recorded it. The
// last 1,024 are remembered.
//
// The end of a stream is authentic too: shutdown_write() says goodbye, and a stream that ends
// without one is broken, not closed.
//
// What differs from a plain connection:
//   1. read() and write() before the handshake is done only drive it.
//   2. Bytes that a write did not take are offered again by the next one, as they are or with more
//      behind them: some may be sealed already.
//   3. Bytes may wait here with nothing left in the socket. Read until 0 bytes come (which every
//      user of a poller does), or ask pending().
//   4. A goodbye that the socket would not take leaves with a later call; wants_write() tells.
//
// Thread rule: one thread at a time uses a connection; any a TlsClient or TlsServer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sys/net.h"
#include "transport/client_greeting.h"
#include "transport/keys.h"

// OpenSSL's, whose headers stay out of ours.
struct ssl_st;
struct ssl_ctx_st;

namespace lockstep::transport {

/// The key that goes with an identity; nothing for a stranger. Called once in a handshake, on the
/// thread that drives it, with whatever a stranger sent. Should take the same time for either.
using KeyLookup = std::function<std::optional<PairKey>(std::string_view identity)>;

struct TlsOptions {
  /// Records written with one key before the next one is derived. AES-GCM is good for 24 million;
  /// four are 64 GiB in full records.
  std::uint64_t records_per_key = std::uint64_t{1} << 22;
};

namespace tls {
struct FreeOpenSsl {
  void operator()(ssl_st* ssl) const noexcept;
  void operator()(ssl_ctx_st* context) const noexcept;
};
using Ssl = std::unique_ptr<ssl_st, FreeOpenSsl>;
using Context = std::unique_ptr<ssl_ctx_st, FreeOpenSsl>;
struct Callbacks;
struct ServerSide;
}  // namespace tls

class TlsConnection final : public sys::Connection {
 public:
  enum class State : std::uint8_t { pending, done, failed };

  /// Bytes taken from a peer during the handshake, at most; its greeting must be one record.
  static constexpr std::size_t kMaxGreeting = ClientGreeting::kMaxBytes;
  static constexpr std::size_t kMaxIdentity = 256;

  /// Says goodbye if it can be said at once, and closes.
  ~TlsConnection() override;
  TlsConnection(const TlsConnection&) = delete;
  TlsConnection& operator=(const TlsConnection&) = delete;

  /// Goes on with the handshake as far as possible without waiting.
  State handshake() noexcept;
  /// What must become possible before this connection can go on by itself: the handshake, or a
  /// goodbye not yet sent.
  [[nodiscard]] bool wants_read() const noexcept;
  [[nodiscard]] bool wants_write() const noexcept;
  /// A server's: the client's greeting has proven that it knows the key. The handshake may still be
  /// under way.
  [[nodiscard]] bool key_proven() const noexcept {
    return state_ == State::done || (state_ == State::pending && ssl_ != nullptr);
  }
  /// Who the client is; empty before the handshake is done.
  [[nodiscard]] std::string_view identity() const noexcept;
  /// True if read() has bytes at hand whatever the poller says.
  [[nodiscard]] bool pending() const noexcept;
  /// The cipher in use, by its name in TLS; for tests and reports.
  [[nodiscard]] std::string cipher() const;

  sys::Transfer read(std::span<std::byte> into) noexcept override;
  sys::Transfer write(std::span<const std::byte> from) noexcept override;
  void shutdown_write() noexcept override;
  [[nodiscard]] Status error() const override;
  [[nodiscard]] std::string peer() const override;
  [[nodiscard]] sys::Connection& underlying() noexcept override;

  /// Gives the plain connection back, to go on without encryption: authenticated when it was made,
  /// unprotected from here on. Both sides do this, right after the handshake and before any read()
  /// or write(); InvalidUsage otherwise. Nothing of TLS follows on the wire. What is left of this
  /// object can only be destroyed.
  [[nodiscard]] std::unique_ptr<sys::Connection> leave_tls();

 private:
  friend class TlsClient;
  friend class TlsServer;
  friend struct tls::Callbacks;

  enum class Fault : std::uint8_t {
    none,
    inner,      // the plain connection broke
    wrong_key,  // the keys differ, or the client is unknown
    repeated,   // a greeting that was used before
    no_key,     // what came was no handshake of ours
    hung_up,    // the stream ended during the handshake
    truncated,  // the stream ended without a goodbye
    altered,    // a record failed its check
    no_memory,  // this process has none left
    gave_up,    // the peer says that it has failed
    left,       // leave_tls() was called
    internal,
  };
  enum class Blocked : std::uint8_t { no, reading, writing };
  enum class Goodbye : std::uint8_t { none, asked, said };

  TlsConnection(std::unique_ptr<sys::Connection> inner, const TlsOptions& options);
  /// From here on OpenSSL has the word. std::bad_alloc, SystemError without memory.
  void start(tls::Ssl ssl);

  // Between OpenSSL and the plain connection.
  int take(std::span<std::byte> into) noexcept;
  int give(std::span<const std::byte> from) noexcept;
  bool give_held() noexcept;

  // A server's first part of the handshake, before there is an SSL object.
  /// Reads the greeting; true once it is whole and believed.
  bool hear() noexcept;
  /// Believes a whole greeting, or fails.
  void believe();
  void refuse(Fault fault, std::byte alert) noexcept;
  /// And gives its memory back.
  void forget_greeting() noexcept { std::vector<std::byte>().swap(greeting_); }

  /// What a call into OpenSSL that did not succeed means; sets fault_ or blocked_.
  void judge(int result) noexcept;
  /// OpenSSL has failed in a way that is not the peer's doing.
  void fail_inside() noexcept;
  void fail(Fault fault) noexcept;
  void finish_handshake() noexcept;
  /// Drives the handshake and a goodbye not yet sent; true once data may move.
  bool established() noexcept;
  /// True if application data can be written now: no record and no change of keys is half sent.
  bool writable() noexcept;
  bool change_keys() noexcept;
  void say_goodbye() noexcept;
  [[nodiscard]] bool is_server() const noexcept { return server_ != nullptr; }
  [[nodiscard]] Status wrong_key() const;

  std::unique_ptr<sys::Connection> inner_;
  tls::Ssl ssl_;
  std::uint64_t records_per_key_;
  std::uint64_t records_ = 0;  // written with this key
  State state_ = State::pending;
  Fault fault_ = Fault::none;
  Blocked blocked_ = Blocked::no;  // why the last call stopped
  Goodbye goodbye_ = Goodbye::none;
  bool closed_ = false;       // the peer said goodbye
  bool deaf_ = false;         // the plain connection takes no more
  bool spoke_ = false;        // the plain connection has taken something
  bool used_ = false;         // read or written after the handshake
  bool more_ = false;         // the last read stopped before it found nothing left
  bool stuck_ = false;        // a record is half sent
  std::size_t sealed_ = 0;    // bytes of the caller's in a record that was not reported yet
  std::size_t taken_ = 0;     // bytes read during the handshake
  unsigned long detail_ = 0;  // OpenSSL's error code
  std::string identity_;
  std::optional<PairKey> key_;               // until it is used
  std::shared_ptr<tls::ServerSide> server_;  // null: this is a client
  std::vector<std::byte> greeting_;          // a client's, until OpenSSL has read it
  std::size_t reread_ = 0;                   // bytes of it that OpenSSL has read
  // A change of keys that the socket did not take. Reading stands still in OpenSSL while one is
  // half sent: two peers with full sockets would wait for each other.
  std::array<std::byte, 64> held_{};
  std::size_t held_size_ = 0;
};

/// The settings of one side, made once for all its connections.
class TlsClient {
 public:
  /// Unsupported if this OpenSSL cannot do it.
  explicit TlsClient(const TlsOptions& options = {});
  /// Introduces itself as `identity`, at most TlsConnection::kMaxIdentity bytes.
  [[nodiscard]] std::unique_ptr<TlsConnection> connect(std::unique_ptr<sys::Connection> inner,
                                                       std::string identity,
                                                       const PairKey& key) const;

 private:
  tls::Context context_;
  TlsOptions options_;
};

class TlsServer {
 public:
  explicit TlsServer(KeyLookup lookup, const TlsOptions& options = {});
  [[nodiscard]] std::unique_ptr<TlsConnection> accept(std::unique_ptr<sys::Connection> inner) const;

 private:
  std::shared_ptr<tls::ServerSide> side_;
  TlsOptions options_;
};

}  // namespace lockstep::transport
