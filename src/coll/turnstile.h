// Turnstile: operations of one session run one after another, in the order they were issued,
// whichever threads issue and drive them. A ticket is taken when an operation is issued and passed
// when it is over.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/gate.h"

namespace lockstep::coll {

class Turnstile {
 public:
  std::uint64_t take() noexcept { return next_.fetch_add(1, std::memory_order_relaxed); }

  /// A ticket whose turn has come already; empty if others are before it.
  std::optional<std::uint64_t> take_if_idle() noexcept {
    std::uint64_t ticket = serving_.load(std::memory_order_acquire);
    if (!next_.compare_exchange_strong(ticket, ticket + 1)) return std::nullopt;
    return ticket;
  }

  /// False if the turn has not come at the deadline; the ticket stays valid and must still be
  /// passed.
  bool wait(std::uint64_t ticket, Deadline deadline) {
    const auto my_turn = [&] { return is_serving(ticket); };
    return my_turn() || gate_.wait(my_turn, deadline);
  }

  /// Until every ticket taken has been passed; false at the deadline.
  bool wait_until_idle(Deadline deadline) {
    return gate_.wait([this] { return outstanding() == 0; }, deadline);
  }

  [[nodiscard]] bool is_serving(std::uint64_t ticket) const noexcept {
    return serving_.load(std::memory_order_acquire) == ticket;
  }

  void pass() noexcept {
    // Nobody else passes meanwhile: it is our turn.
    serving_.store(serving_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    gate_.notify();
  }

  /// Tickets taken and not passed yet.
  [[nodiscard]] std::uint64_t outstanding() const noexcept {
    const std::uint64_t served = serving_.load(std::memory_order_acquire);
    return next_.load(std::memory_order_acquire) - served;
  }

 private:
  std::atomic<std::uint64_t> next_ = 0;
  std::atomic<std::uint64_t> serving_ = 0;
  Gate gate_;
};

}  // namespace lockstep::coll
