// No reduction at all: a bare TLS 1.3 stream of OpenSSL's with a pre-shared key, over which each of
// two ranks sends its buffer and receives the other's at the same time. The bytes are those that an
// all-reduce of two ranks moves.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "bench/peers/addresses.h"
#include "bench/peers/rank_main.h"

namespace lockstep::bench::peers {
namespace {

constexpr std::array<unsigned char, 32> kKey = {7, 1, 9, 4, 2, 8};
constexpr const char* kIdentity = "bench";

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

[[noreturn]] void fail_tls(const std::string& what) {
  std::array<char, 160> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  throw std::runtime_error(what + ": " + text.data());
}

/// A session that both ends could have agreed on earlier: what TLS 1.3 takes for a pre-shared key.
SSL_SESSION* shared_session(SSL* tls) {
  constexpr std::array<unsigned char, 2> kAes128GcmSha256 = {0x13, 0x01};
  SSL_SESSION* session = SSL_SESSION_new();
  SSL_SESSION_set1_master_key(session, kKey.data(), kKey.size());
  SSL_SESSION_set_cipher(session, SSL_CIPHER_find(tls, kAes128GcmSha256.data()));
  SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
  return session;
}

int server_key(SSL* tls, const unsigned char*, std::size_t, SSL_SESSION** session) {
  *session = shared_session(tls);
  return 1;
}

int client_key(SSL* tls, const EVP_MD*, const unsigned char** identity, std::size_t* length,
               SSL_SESSION** session) {
  *identity = reinterpret_cast<const unsigned char*>(kIdentity);
  *length = std::char_traits<char>::length(kIdentity);
  *session = shared_session(tls);
  return 1;
}

sockaddr_in socket_address(const std::string& address) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<std::uint16_t>(port_of(address)));
  inet_pton(AF_INET, host_of(address).c_str(), &at.sin_addr);
  return at;
}

int accept_peer(const std::string& address) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const sockaddr_in at = socket_address(address);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0 ||
      listen(listener, 1) != 0)
    fail("cannot listen at " + address);
  const int peer = accept(listener, nullptr, nullptr);
  close(listener);
  if (peer < 0) fail("no peer at " + address);
  return peer;
}

int connect_to_peer(const std::string& address) {
  const sockaddr_in at = socket_address(address);
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(peer, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) == 0) return peer;
    close(peer);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  fail("cannot connect to " + address);
}

class Stream {
 public:
  explicit Stream(const RankOptions& options) : context_(SSL_CTX_new(TLS_method())) {
    SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(context_, "TLS_AES_128_GCM_SHA256");  // the key's own
    SSL_CTX_set_psk_find_session_callback(context_, server_key);
    SSL_CTX_set_psk_use_session_callback(context_, client_key);
    SSL_CTX_set_mode(context_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // Several records a read, or every record costs two calls of the kernel.
    SSL_CTX_set_read_ahead(context_, 1);
    SSL_CTX_set_default_read_buffer_len(context_, 256 << 10);
    const std::string server = addresses_of(options).at(0);
    socket_ = options.rank == 0 ? accept_peer(server) : connect_to_peer(server);
    const int yes = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    tls_ = SSL_new(context_);
    SSL_set_fd(tls_, socket_);
    if ((options.rank == 0 ? SSL_accept(tls_) : SSL_connect(tls_)) != 1) fail_tls("no handshake");
    fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
  }
  ~Stream() {
    SSL_free(tls_);
    SSL_CTX_free(context_);
    close(socket_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Sends `out` while it receives `in`.
  void exchange(std::span<const std::byte> out, std::span<std::byte> in) {
    constexpr int kPolls = 200;  // before it sleeps: being woken costs more
    int idle = 0;
    while (!out.empty() || !in.empty()) {
      std::size_t sent = 0;
      std::size_t got = 0;
      if (!out.empty() && SSL_write_ex(tls_, out.data(), out.size(), &sent) != 1) expect_wait();
      if (!in.empty() && SSL_read_ex(tls_, in.data(), in.size(), &got) != 1) expect_wait();
      out = out.subspan(sent);
      in = in.subspan(got);
      idle = sent + got == 0 ? idle + 1 : 0;
      if (idle > kPolls) wait(!out.empty());
    }
  }

 private:
  void expect_wait() {
    ERR_clear_error();
    if (!SSL_want_read(tls_) && !SSL_want_write(tls_)) fail_tls("the stream broke");
  }
  void wait(bool to_send) const {
    pollfd wanted{.fd = socket_, .events = POLLIN, .revents = 0};
    if (to_send) wanted.events |= POLLOUT;
    if (poll(&wanted, 1, 10'000) == 0) throw std::runtime_error("nothing moved for 10 s");
  }

  SSL_CTX* context_;
  SSL* tls_ = nullptr;
  int socket_ = -1;
};

class StreamCall final : public Call {
 public:
  StreamCall(Stream& stream, const Job& job) : stream_(stream), out_(job), in_(job) {}
  std::span<float> memory() override { return out_.all(); }
  void run() override {
    stream_.exchange(std::as_bytes(out_.all()), std::as_writable_bytes(in_.all()));
  }
  [[nodiscard]] bool adds_up() const override { return false; }

 private:
  Stream& stream_;
  CallerMemory out_;
  CallerMemory in_;
};

class OpenSsl final : public Contestant {
 public:
  explicit OpenSsl(const RankOptions& options) : stream_(options) {
    if (options.ranks != 2) throw std::runtime_error("the stream has two ends");
  }
  std::unique_ptr<Call> prepare(const Job& job) override {
    return std::make_unique<StreamCall>(stream_, job);
  }
  void barrier() override {}  // nothing is left to do when all has been received

 private:
  Stream stream_;
};

}  // namespace
}  // namespace lockstep::bench::peers

int main(int argc, char** argv) {
  using namespace lockstep::bench::peers;
  return rank_main(argc, argv,
                   [](const RankOptions& options) { return std::make_unique<OpenSsl>(options); });
}
