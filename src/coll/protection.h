// Protection: who may call whom between machines. Connections speak TLS with a key that both ranks
// derive from the job's; data may go on in plain text once both have proven that they know it.
//
// Thread rule: any thread; a connection is used by one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "sys/net.h"
#include "transport/keys.h"
#include "transport/tls.h"

namespace lockstep::coll {

/// A connection whose other end is known. Moves nothing until it is.
class ProtectedConnection final : public sys::Connection {
 public:
  enum class After : std::uint8_t { encrypted, plain };
  /// `after` is the caller's to say; the one that answers learns it from the caller's identity.
  ProtectedConnection(std::unique_ptr<transport::TlsConnection> tls, After data_after,
                      bool is_data);
  ~ProtectedConnection() override;

  /// The rank that called, once it is known; -1 before, and for the caller itself.
  [[nodiscard]] int client() const noexcept { return client_; }
  /// The generation in which it called, of whose keys it has proven to have one; 0: none, it joins.
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }
  /// The caller's first message has proven that it knows the key; for the one that answers.
  [[nodiscard]] bool key_proven() const noexcept { return established_ || tls_->key_proven(); }

  sys::Transfer read(std::span<std::byte> into) noexcept override;
  sys::Transfer write(std::span<const std::byte> from) noexcept override;
  sys::Transfer write_both(std::span<const std::byte> first,
                           std::span<const std::byte> second) noexcept override;
  void shutdown_write() noexcept override;
  [[nodiscard]] Status error() const override;
  [[nodiscard]] std::string peer() const override;
  [[nodiscard]] bool is_open() const noexcept override { return established_; }
  [[nodiscard]] std::string local_host() const override { return local_host_; }
  [[nodiscard]] sys::Connection& underlying() noexcept override;

 private:
  /// True once bytes can move, or will never.
  bool established() noexcept;
  [[nodiscard]] sys::Connection& current() const noexcept;

  std::unique_ptr<transport::TlsConnection> tls_;
  std::unique_ptr<sys::Connection> plain_;  // once TLS was left
  After data_after_;
  bool is_data_;
  bool established_ = false;
  bool out_of_memory_ = false;
  int client_ = -1;
  std::uint64_t generation_ = 0;
  std::string local_host_;
};

class Protection {
 public:
  Protection(const transport::JobKey& key, int rank, ProtectedConnection::After data_after);

  /// From now on calls are made in this generation, and those of later ones refused. Calls of
  /// earlier ones, and of ranks that want to join, are let in: their Hello is answered.
  void enter(std::uint64_t generation) noexcept { *generation_ = generation; }

  std::unique_ptr<sys::Connection> call(std::unique_ptr<sys::Connection> inner, int server,
                                        transport::Plane plane) const;
  std::unique_ptr<sys::Connection> answer(std::unique_ptr<sys::Connection> inner) const;

 private:
  transport::JobKey key_;
  int rank_;
  ProtectedConnection::After data_after_;
  std::shared_ptr<std::atomic<std::uint64_t>> generation_;
  transport::TlsClient client_;
  transport::TlsServer server_;
};

/// What a call under way still waits for, in words; empty if it has been answered.
std::string unanswered(sys::Connection& call);

/// Starts calling a rank: with protection where there is any and the address is another machine's.
/// Null: the name in the address is still being looked up; try again.
std::unique_ptr<sys::Connection> protected_call(sys::Network& network, const Protection* protection,
                                                const std::string& address, int rank,
                                                transport::Plane plane);

}  // namespace lockstep::coll
