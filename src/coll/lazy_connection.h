// LazyConnection: a data connection that is opened at its first use, so that only pairs of ranks
// that talk to each other have one. Until it is there, it moves nothing.
//
// What is opened is a socket; `turn` may make another connection of it. A peer that cannot be
// reached is lost; what this process cannot have (a descriptor, memory) is its own failure.
//
// One thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "coll/greeting.h"
#include "coll/presence.h"
#include "sys/net.h"

namespace lockstep::coll {

class LazyConnection final : public sys::Connection {
 public:
  using Turn = std::function<std::unique_ptr<sys::Connection>(std::unique_ptr<sys::Connection>)>;

  LazyConnection(std::shared_ptr<Presence> presence, std::uint64_t group, int rank, Turn turn = {})
      : presence_(std::move(presence)), group_(group), rank_(rank), turn_(std::move(turn)) {}

  sys::Transfer read(std::span<std::byte> into) noexcept override;
  sys::Transfer write(std::span<const std::byte> from) noexcept override;
  sys::Transfer write_both(std::span<const std::byte> first,
                           std::span<const std::byte> second) noexcept override;
  void shutdown_write() noexcept override;
  [[nodiscard]] Status error() const override;
  [[nodiscard]] std::string peer() const override;
  [[nodiscard]] bool ready() const noexcept override { return open_ && inner_->ready(); }
  [[nodiscard]] std::optional<sys::Interest> before_wait(sys::Interest wanted) noexcept override {
    return open_ ? inner_->before_wait(wanted) : wanted;
  }
  [[nodiscard]] sys::Connection& underlying() noexcept override {
    return open_ ? inner_->underlying() : *this;
  }

 private:
  /// True once bytes can move.
  bool opened() noexcept;
  void open();
  /// The socket; null: not there yet.
  std::unique_ptr<sys::Connection> called();
  void finish();
  /// Throws what the peer has answered instead.
  [[noreturn]] void refused() const;
  /// A try came to nothing: there is another one, or PeerLost.
  void not_reached(const Status& why);

  std::shared_ptr<Presence> presence_;
  std::uint64_t group_;
  int rank_;
  Turn turn_;
  std::unique_ptr<sys::Connection> inner_;
  std::unique_ptr<Greeting> greeting_;  // of a caller, until the peer has acknowledged it
  bool open_ = false;
  Time called_{};
  Time first_try_{};
  Time next_try_{};
};

}  // namespace lockstep::coll
