// Whether OpenSSL failed for a reason of this process, which is almost always want of memory. Private
// to what calls it.
#pragma once

#include <openssl/err.h>
#include <openssl/ssl.h>

namespace lockstep::transport {

/// Of the errors of this thread that nobody has taken yet; takes them.
inline bool openssl_lacked_memory() noexcept {
  bool lacked = false;
  while (const unsigned long error = ERR_get_error()) {
    lacked = lacked || ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE;
  }
  return lacked;
}

/// Not all of its functions say that an allocation has failed: of some one learns only that a part of
/// OpenSSL gave up. What a peer can cause by what it sends has a reason of TLS's own.
inline bool is_openssls_own(unsigned long error) noexcept {
  if (error == 0) return false;
  if (ERR_GET_LIB(error) != ERR_LIB_SSL || ERR_COMMON_ERROR(error)) return true;
  // Nobody offers or asks for a signature here.
  return ERR_GET_REASON(error) == SSL_R_COPY_PARAMETERS_FAILED ||
         ERR_GET_REASON(error) == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM;
}

}  // namespace lockstep::transport
