// Workers: the processes of a strategy that spans several, seen from one of them.
//
// Every worker makes the same calls in the same order, from the thread that leads the strategy; one
// that asks for something else is found before data is mixed (Mismatch), one that is gone is named
// (PeerLost). Worker 0 is the chief. Replicas are numbered through: worker w has those from
// w * local on.
//
// Lanes that are to exchange together have a session each:
//
//   workers.have_lane_sessions(core.replicas());   // once, by the thread that leads
//   core.on_lanes([&](int lane) { workers.session(lane).all_reduce(...); });
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/coll/session.h"
#include "lockstep/tensor.h"

namespace lockstep::detail {

/// Something all workers must be alike in, and how this one is: {"variable", "bias [10] float"}.
struct Trait {
  std::string what;
  std::string value;
};

/// What require_alike() needs of a group.
struct Comparing {
  /// What each worker gives, in the order of workers; all workers together.
  std::function<std::vector<std::string>(const std::string&)> gather;
  /// Called on every worker before each of them throws.
  std::function<void()> before_throwing;
};
/// Mismatch naming the first entry in which a worker differs from worker 0, that worker, and what
/// both have.
void require_alike(const Comparing& group, std::string_view subject,
                   const std::vector<Trait>& traits);

class Workers {
 public:
  /// `timeout` is that of every call; 0: the session's own.
  explicit Workers(coll::Session& session, std::chrono::nanoseconds timeout = {})
      : session_(session), timeout_(timeout) {}
  /// ConfigError unless every worker of the group has `local` replicas.
  static void require_equal_numbers(const coll::Session& session, int local);

  [[nodiscard]] int count() const noexcept { return session_.size(); }
  [[nodiscard]] int index() const noexcept { return session_.rank(); }
  [[nodiscard]] bool is_chief() const noexcept { return index() == 0; }
  [[nodiscard]] int replicas() const noexcept { return session_.replicas(); }
  [[nodiscard]] int first_replica() const noexcept { return session_.first_replica(); }
  /// Workers before this one on the same host.
  [[nodiscard]] int index_on_host() const;
  [[nodiscard]] coll::Session& session() noexcept { return session_; }
  /// That of a lane: a session of all workers that is used by this lane alone, so that lanes
  /// exchange at the same time. Lane 0's is session(). Any thread, after have_lane_sessions().
  [[nodiscard]] coll::Session& session(int lane) noexcept {
    return lane == 0 ? session_ : lane_sessions_[static_cast<std::size_t>(lane) - 1];
  }
  /// Makes the sessions of so many lanes, as far as there are none yet; all workers together.
  void have_lane_sessions(int lanes);
  /// Options of a call of this name. `description` is what messages say in its place (verb.h).
  [[nodiscard]] coll::CallOptions call(std::string_view what,
                                       std::span<const std::int64_t> shape = {},
                                       std::string_view description = {}) const {
    return {.name = what, .description = description, .timeout = timeout_, .shape = shape};
  }

  /// Until all workers are here; 0: no other deadline than that of every call.
  void barrier(std::string_view what, std::chrono::nanoseconds timeout = {});

  /// The chief's values become everybody's. Dense tensors, alike on all workers.
  void broadcast(const std::vector<Tensor>& tensors, std::string_view what);
  /// The same of one tensor, as a new one; what is given stays as it is.
  [[nodiscard]] Tensor from_chief(const Tensor& tensor, std::string_view what);
  [[nodiscard]] std::uint64_t from_chief(std::uint64_t number, std::string_view what);
  /// Of a text and of a tensor that the other workers know nothing of.
  [[nodiscard]] std::string text_from_chief(const std::string& text, std::string_view what);
  [[nodiscard]] Tensor any_from_chief(const Tensor& tensor, std::string_view what);

  /// In the order of workers.
  [[nodiscard]] std::vector<Tensor> gather(const Tensor& tensor, std::string_view what);
  [[nodiscard]] std::vector<std::int64_t> gather(std::span<const std::int64_t> numbers,
                                                 std::string_view what);
  /// Those of all workers, however many each has.
  [[nodiscard]] std::vector<std::string> gather(const std::vector<std::string>& texts,
                                                std::string_view what);
  /// Added up over the workers, in place.
  void sum(std::span<std::int64_t> numbers, std::string_view what);

  /// The same of these workers.
  void require_alike(std::string_view subject, const std::vector<Trait>& traits);

  /// This worker cannot go on: the others' waits throw PeerLost with this reason.
  void abandon(const std::string& reason) noexcept { session_.abandon(reason); }
  /// Strategies that are made over these workers, and end: with the last one the worker leaves, in
  /// good order, whatever of them lives on. Later calls are InvalidUsage.
  void begin_strategy() noexcept {
    ++strategies_;
    exceptions_ = std::uncaught_exceptions();
  }
  void end_strategy() noexcept {
    if (--strategies_ > 0) return;
    // The others would only learn that this worker has gone.
    if (std::uncaught_exceptions() > exceptions_) abandon("an exception ended its strategy");
    for (coll::Session& session : lane_sessions_) session.close();
    session_.close();
  }

 private:
  coll::Session& session_;
  std::chrono::nanoseconds timeout_;
  std::vector<coll::Session> lane_sessions_;  // of lanes 1, 2, ...
  std::atomic<int> strategies_ = 0;
  std::atomic<int> exceptions_ = 0;  // under way where the last strategy was made
};

}  // namespace lockstep::detail
