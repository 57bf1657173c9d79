// What OpenSSL is made to do, and what it calls back. Private to transport/tls*.
#pragma once

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "transport/tls.h"

namespace lockstep::transport::tls {

/// Set to our one choice of everything. Unsupported if this OpenSSL cannot do it.
Context make_context(const SSL_METHOD* method);
/// SystemError without memory.
Ssl make_ssl(const Context& context);

struct Callbacks {
  /// Reads and writes the connection's plain one directly. The caller owns the result.
  static BIO* make_bio(TlsConnection& connection);

  static int read(BIO* bio, char* into, int size);
  static int write(BIO* bio, const char* from, int size);
  static long control(BIO* bio, int what, long number, void* pointer);
  /// The client's key and name.
  static int use_key(SSL* ssl, const EVP_MD* digest, const unsigned char** identity,
                     std::size_t* size, SSL_SESSION** session);
  /// The key of a client that has shown already that it knows it.
  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t size,
                      SSL_SESSION** session);
};

}  // namespace lockstep::transport::tls
