// TLS as a program has it that calls OpenSSL and blocks: the same protocol, key and cipher as ours.
#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <span>

namespace lockstep::bench {

class BareTls {
 public:
  enum class Side { client, server };
  /// Takes the connected, blocking socket over. shake() may need the other side on its own thread.
  BareTls(Side side, int socket, std::span<const std::byte, 32> key);
  ~BareTls();
  BareTls(const BareTls&) = delete;
  BareTls& operator=(const BareTls&) = delete;

  void shake();
  void write_all(std::span<const std::byte> bytes, std::size_t piece);
  void read_all(std::span<std::byte> bytes, std::size_t piece);

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  Side side_;
  int socket_;
  std::span<const std::byte, 32> key_;
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> ssl_;
};

}  // namespace lockstep::bench
