// What OpenSSL calls back. Private to transport/tls*.
#pragma once

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "transport/tls.h"

namespace lockstep::transport::tls {

struct Callbacks {
  /// Reads and writes the connection's plain one directly. The caller owns the result.
  static BIO* make_bio(TlsConnection& connection);

  static int read(BIO* bio, char* into, int size);
  static int write(BIO* bio, const char* from, int size);
  static long control(BIO* bio, int what, long number, void* pointer);
  /// The client's key and name.
  static int use_key(SSL* ssl, const EVP_MD* digest, const unsigned char** identity,
                     std::size_t* size, SSL_SESSION** session);
  /// The key of a client that has given its name.
  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t size,
                      SSL_SESSION** session);
};

}  // namespace lockstep::transport::tls
