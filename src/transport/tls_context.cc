// What OpenSSL is set to, and the calls it makes back.
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cassert>
#include <new>

#include "lockstep/error.h"
#include "transport/openssl_memory.h"
#include "transport/tls.h"
#include "transport/tls_callbacks.h"

namespace lockstep::transport {
namespace {

constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherCode[2] = {0x13, 0x01};
constexpr const char* kNoMemory = "out of memory for a TLS connection";

[[noreturn]] void cannot(const char* what) {
  char text[256] = {};
  ERR_error_string_n(ERR_peek_error(), text, sizeof(text));
  if (openssl_lacked_memory()) throw std::bad_alloc();
  throw Unsupported(std::string("this OpenSSL cannot ") + what + " (" + text +
                    "); check its configuration");
}

/// Nobody shows a certificate here. Without this a client would talk to a server that knows no key
/// but has one.
int refuse_certificates(X509_STORE_CTX* /*store*/, void* /*unused*/) { return 0; }

/// The key in the form OpenSSL takes it in: a session to be resumed. Null without memory.
SSL_SESSION* session_of(SSL* ssl, std::span<const std::byte, PairKey::kBytes> key) {
  SSL_SESSION* session = SSL_SESSION_new();
  if (session == nullptr) return nullptr;
  const auto* bytes = reinterpret_cast<const unsigned char*>(key.data());
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipherCode);
  if (cipher != nullptr && SSL_SESSION_set1_master_key(session, bytes, key.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

TlsConnection& owner(BIO* bio) { return *static_cast<TlsConnection*>(BIO_get_data(bio)); }
TlsConnection& owner(SSL* ssl) { return *static_cast<TlsConnection*>(SSL_get_app_data(ssl)); }

}  // namespace

namespace tls {

Context make_context(const SSL_METHOD* method) {
  // A process may end while a thread of ours still writes: OpenSSL's cleaning up at exit would take
  // its memory away under it. No effect if somebody has initialised OpenSSL before us.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  ERR_clear_error();
  Context context(SSL_CTX_new(method));
  SSL_CTX* c = context.get();
  if (c == nullptr) cannot("make a context for TLS");
  // Whatever the system's configuration says.
  SSL_CTX_set_security_level(c, 2);
  if (SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) != 1) {
    cannot("do TLS 1.3");
  }
  if (SSL_CTX_set_ciphersuites(c, kCipher) != 1) cannot("use TLS_AES_128_GCM_SHA256");
  if (SSL_CTX_set1_groups_list(c, "X25519") != 1) cannot("use X25519");
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  if (SSL_CTX_set_num_tickets(c, 0) != 1) cannot("do without tickets");
  SSL_CTX_set_max_early_data(c, 0);
  SSL_CTX_set_recv_max_early_data(c, 0);
  SSL_CTX_clear_options(
      c, SSL_OP_ENABLE_MIDDLEBOX_COMPAT | SSL_OP_ALLOW_NO_DHE_KEX | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_max_cert_list(c, 1);
  SSL_CTX_clear_mode(c, SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  return context;
}

Ssl make_ssl(const Context& context) {
  Ssl ssl(SSL_new(context.get()));
  if (!ssl) throw SystemError(kNoMemory);
  return ssl;
}

void FreeOpenSsl::operator()(ssl_st* ssl) const noexcept { SSL_free(ssl); }
void FreeOpenSsl::operator()(ssl_ctx_st* context) const noexcept { SSL_CTX_free(context); }

int Callbacks::read(BIO* bio, char* into, int size) {
  BIO_clear_retry_flags(bio);
  TlsConnection& connection = owner(bio);
  const int got = connection.take(
      std::as_writable_bytes(std::span(into, static_cast<std::size_t>(size > 0 ? size : 0))));
  if (got < 0 && connection.blocked_ == TlsConnection::Blocked::reading) BIO_set_retry_read(bio);
  return got;
}

int Callbacks::write(BIO* bio, const char* from, int size) {
  BIO_clear_retry_flags(bio);
  TlsConnection& connection = owner(bio);
  const int sent = connection.give(
      std::as_bytes(std::span(from, static_cast<std::size_t>(size > 0 ? size : 0))));
  if (sent < 0 && connection.blocked_ == TlsConnection::Blocked::writing) BIO_set_retry_write(bio);
  return sent;
}

long Callbacks::control(BIO* /*bio*/, int what, long /*number*/, void* /*pointer*/) {
  return what == BIO_CTRL_FLUSH ? 1 : 0;  // nothing is kept here: flushed at all times
}

BIO* Callbacks::make_bio(TlsConnection& connection) {
  static const std::unique_ptr<BIO_METHOD, void (*)(BIO_METHOD*)> method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "lockstep");
    if (made == nullptr) throw SystemError(kNoMemory);  // and the next call tries again
    BIO_meth_set_read(made, read);
    BIO_meth_set_write(made, write);
    BIO_meth_set_ctrl(made, control);
    return std::unique_ptr<BIO_METHOD, void (*)(BIO_METHOD*)>(made, BIO_meth_free);
  }();
  BIO* bio = BIO_new(method.get());
  if (bio == nullptr) throw SystemError(kNoMemory);
  BIO_set_data(bio, &connection);
  BIO_set_init(bio, 1);
  return bio;
}

int Callbacks::use_key(SSL* ssl, const EVP_MD* /*digest*/, const unsigned char** identity,
                       std::size_t* size, SSL_SESSION** session) {
  TlsConnection& connection = owner(ssl);
  // Asked again only if the server wanted another greeting, which one group gives no reason for.
  if (!connection.key_) return 0;
  *session = session_of(ssl, connection.key_->bytes());
  connection.key_.reset();
  *identity = reinterpret_cast<const unsigned char*>(connection.identity_.data());
  *size = connection.identity_.size();
  return *session != nullptr ? 1 : 0;
}

int Callbacks::find_key(SSL* ssl, const unsigned char* identity, std::size_t size,
                        SSL_SESSION** session) {
  TlsConnection& connection = owner(ssl);
  *session = nullptr;
  const std::string_view who(reinterpret_cast<const char*>(identity), size);
  // Believed with this name, or never come here; asked again only as in use_key().
  if (!connection.key_ || who != connection.identity_) return 0;
  *session = session_of(ssl, connection.key_->bytes());
  connection.key_.reset();
  return *session != nullptr ? 1 : 0;
}

}  // namespace tls

TlsClient::TlsClient(const TlsOptions& options)
    : context_(tls::make_context(TLS_client_method())), options_(options) {
  SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_cert_verify_callback(context_.get(), refuse_certificates, nullptr);
  SSL_CTX_set_psk_use_session_callback(context_.get(), tls::Callbacks::use_key);
}

std::unique_ptr<TlsConnection> TlsClient::connect(std::unique_ptr<sys::Connection> inner,
                                                  std::string identity, const PairKey& key) const {
  assert(inner);
  if (identity.empty() || identity.size() > TlsConnection::kMaxIdentity) {
    throw InvalidUsage("an identity has between 1 and " +
                       std::to_string(TlsConnection::kMaxIdentity) + " bytes, not " +
                       std::to_string(identity.size()));
  }
  std::unique_ptr<TlsConnection> made(new TlsConnection(std::move(inner), options_));
  made->start(tls::make_ssl(context_));
  SSL_set_connect_state(made->ssl_.get());
  made->blocked_ = TlsConnection::Blocked::writing;
  made->identity_ = std::move(identity);
  made->key_ = key;
  return made;
}

}  // namespace lockstep::transport
