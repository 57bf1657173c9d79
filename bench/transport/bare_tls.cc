#include "bench/transport/bare_tls.h"

#include <unistd.h>

#include <algorithm>
#include <stdexcept>

namespace lockstep::bench {
namespace {

constexpr unsigned char kName[] = {'b', 'e', 'n', 'c', 'h'};
constexpr unsigned char kCipher[] = {0x13, 0x01};

SSL_SESSION* session(SSL* ssl) {
  const auto* key = static_cast<const unsigned char*>(SSL_get_app_data(ssl));
  SSL_SESSION* made = SSL_SESSION_new();
  SSL_SESSION_set1_master_key(made, key, 32);
  SSL_SESSION_set_cipher(made, SSL_CIPHER_find(ssl, kCipher));
  SSL_SESSION_set_protocol_version(made, TLS1_3_VERSION);
  return made;
}

int find(SSL* ssl, const unsigned char* /*name*/, std::size_t /*size*/, SSL_SESSION** found) {
  *found = session(ssl);
  return 1;
}

int use(SSL* ssl, const EVP_MD* /*digest*/, const unsigned char** name, std::size_t* size,
        SSL_SESSION** used) {
  *name = kName;
  *size = sizeof(kName);
  *used = session(ssl);
  return 1;
}

void check(bool good) {
  if (!good) throw std::runtime_error("bare TLS failed");
}

}  // namespace

BareTls::BareTls(Side side, int socket, std::span<const std::byte, 32> key)
    : side_(side),
      socket_(socket),
      key_(key),
      context_(SSL_CTX_new(side == Side::client ? TLS_client_method() : TLS_server_method())),
      ssl_(nullptr) {
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context_.get(), "TLS_AES_128_GCM_SHA256");
  SSL_CTX_set_num_tickets(context_.get(), 0);
  SSL_CTX_set_psk_use_session_callback(context_.get(), use);
  SSL_CTX_set_psk_find_session_callback(context_.get(), find);
  ssl_.reset(SSL_new(context_.get()));
  SSL_set_app_data(ssl_.get(), const_cast<std::byte*>(key_.data()));
  SSL_set_fd(ssl_.get(), socket_);
}

BareTls::~BareTls() { ::close(socket_); }

void BareTls::shake() {
  check((side_ == Side::client ? SSL_connect(ssl_.get()) : SSL_accept(ssl_.get())) == 1);
}

void BareTls::write_all(std::span<const std::byte> bytes, std::size_t piece) {
  while (!bytes.empty()) {
    std::size_t sent = 0;
    check(SSL_write_ex(ssl_.get(), bytes.data(), std::min(piece, bytes.size()), &sent) == 1);
    bytes = bytes.subspan(sent);
  }
}

void BareTls::read_all(std::span<std::byte> bytes, std::size_t piece) {
  while (!bytes.empty()) {
    std::size_t got = 0;
    check(SSL_read_ex(ssl_.get(), bytes.data(), std::min(piece, bytes.size()), &got) == 1);
    bytes = bytes.subspan(got);
  }
}

}  // namespace lockstep::bench
