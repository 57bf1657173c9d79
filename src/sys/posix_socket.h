// PosixConnection and PosixListener: the sockets behind PosixNetwork. Private to sys/posix_*.
#pragma once

#include <sys/socket.h>
#include <sys/stat.h>

#include <memory>
#include <string>

#include "sys/descriptor.h"
#include "sys/net.h"

namespace lockstep::sys {

/// A socket address of any family.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  [[nodiscard]] sockaddr* data() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] const sockaddr* data() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
  [[nodiscard]] int family() const noexcept { return storage.ss_family; }
  /// Same host and port; false for Unix sockets, whose callers have no name.
  [[nodiscard]] bool same_endpoint(const SocketAddress& other) const noexcept;
  /// In numbers: "127.0.0.1:4000".
  [[nodiscard]] std::string to_string() const;
  /// The address a socket is bound to.
  static SocketAddress of(int fd) noexcept;
};

class PosixConnection final : public Connection {
 public:
  /// Starts connecting; a refusal is kept for the first transfer.
  PosixConnection(Descriptor socket, const SocketAddress& target, std::string peer);
  /// An accepted socket.
  PosixConnection(Descriptor socket, std::string peer);

  Transfer read(std::span<std::byte> into) noexcept override;
  Transfer write(std::span<const std::byte> from) noexcept override;
  Transfer write_both(std::span<const std::byte> first,
                      std::span<const std::byte> second) noexcept override;
  void shutdown_write() noexcept override;
  [[nodiscard]] Status error() const override;
  [[nodiscard]] std::string peer() const override { return peer_; }
  [[nodiscard]] bool is_open() const noexcept override {
    return phase_ == Phase::connected && error_ == 0;
  }
  [[nodiscard]] std::string local_host() const override;
  void watch_peer() noexcept override;
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  /// Becomes readable when the peer's process has ended; negative: nobody watches it.
  [[nodiscard]] int peer_fd() const noexcept { return peer_process_.get(); }

 private:
  enum class Phase : unsigned char { calling, connecting, connected };
  void call() noexcept;
  /// True once connected or failed.
  bool settled() noexcept;
  [[nodiscard]] bool peer_has_ended() const noexcept;
  Transfer failed(int error) noexcept;

  Descriptor socket_;
  Descriptor peer_process_;  // a pidfd
  SocketAddress target_;
  std::string peer_;
  Phase phase_ = Phase::connected;
  bool shutdown_asked_ = false;
  /// So many writes tell how far away the peer is; of a stranger nothing is asked.
  static constexpr int kGreetings = 16;
  int writes_ = 0;
  int error_ = 0;  // the first errno; broken if not 0
};

class PosixListener final : public Listener {
 public:
  /// `path` is the socket's file, removed at the end; empty if there is none.
  PosixListener(Descriptor socket, std::string address, std::string path);
  ~PosixListener() override;
  PosixListener(const PosixListener&) = delete;
  PosixListener& operator=(const PosixListener&) = delete;

  std::unique_ptr<Connection> accept() override;
  [[nodiscard]] std::string address() const override { return address_; }
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

 private:
  Descriptor socket_;
  std::string address_;
  std::string path_;
  struct stat file_ {};
};

}  // namespace lockstep::sys
