// PosixConnection and PosixListener: the sockets behind PosixNetwork. Private to sys/posix_*.
#pragma once

#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <optional>
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
  /// Without the port, in brackets if it has colons; empty for Unix sockets.
  [[nodiscard]] std::string host() const;
  /// It leads nowhere but to this machine.
  [[nodiscard]] bool is_loopback() const noexcept;
  /// The address a socket is bound to.
  static SocketAddress of(int fd) noexcept;
};

/// Of the process that made the other end of a Unix socket, by connecting or listening, as the
/// kernel knows it; pid 0: it is of another pid namespace. Empty for any other socket.
std::optional<ucred> peer_credentials(int fd) noexcept;

/// Which address of a name is the next one to be called: that of the last call, unless it came to
/// nothing.
using AddressTurn = std::shared_ptr<std::atomic<unsigned>>;

class PosixConnection final : public Connection {
 public:
  /// Starts connecting; a refusal is kept for the first transfer. Anybody may listen under an
  /// abstract name: a process of another user's is refused, too.
  PosixConnection(Descriptor socket, const SocketAddress& target, std::string peer,
                  AddressTurn turn = {});
  /// An accepted socket.
  PosixConnection(Descriptor socket, std::string peer);
  ~PosixConnection() override;
  PosixConnection(const PosixConnection&) = delete;
  PosixConnection& operator=(const PosixConnection&) = delete;

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
  /// False while a Unix listener's queue is full: a poller would find the socket ready for ever.
  [[nodiscard]] bool ready() const noexcept override { return phase_ != Phase::calling; }
  [[nodiscard]] std::string local_host() const override;
  void watch_peer() noexcept override;
  [[nodiscard]] std::optional<Delivery> delivery() const noexcept override {
    return delivery_of(fd());
  }
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
  AddressTurn turn_;  // null: there is one address only
  unsigned taken_turn_ = 0;
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
  [[nodiscard]] bool is_loopback() const noexcept override {
    return SocketAddress::of(fd()).is_loopback();
  }
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

 private:
  Descriptor socket_;
  std::string address_;
  std::string path_;
  struct stat file_ {};
};

}  // namespace lockstep::sys
