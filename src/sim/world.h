// World: virtual time, the events in it and the seeded generator that decides everything else.
//
// The simulated network, processes and disk schedule their events here. Nothing happens by itself:
// time moves only in step() and run_until(), from event to event, so a simulated minute costs as
// much as its events. Events at the same time run in the order they were scheduled. The same seed
// and the same calls give the same run; trace_hash() is a digest of it to compare two runs by.
//
//   World world(seed);
//   world.schedule_after(10ms, [&] { network.kill("host1"); });
//   world.run_until([&] { return cluster.finished(); }, Deadline::after(world, 60s));
//
// Ownership: what an event captures must outlive the event or the last step(). Thread rule: one
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/function_ref.h"
#include "sim/random.h"

namespace lockstep::sim {

class World final : public Clock {
 public:
  explicit World(std::uint64_t seed) : seed_(seed), random_(seed) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] Time now() const noexcept override { return now_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  Random& random() noexcept { return random_; }

  /// Runs the event at that time, or next if the time has passed. Allocates nothing for trivially
  /// copyable captures of up to two words.
  void schedule(Time at, std::function<void()> event);
  void schedule_after(Duration wait, std::function<void()> event) {
    schedule(now_ + wait, std::move(event));
  }

  /// Moves time to the next event and runs it; false if there is none.
  bool step();
  [[nodiscard]] bool idle() const noexcept { return queue_.empty(); }
  /// When step() will take place; Time::max() if idle.
  [[nodiscard]] Time next() const noexcept {
    return queue_.empty() ? Time::max() : queue_.front().at;
  }
  /// Steps until the predicate holds (true), or the deadline has come or nothing is left to happen
  /// (false). At a deadline the time is the deadline's.
  bool run_until(FunctionRef<bool()> holds, Deadline deadline);
  /// Steps through everything up to this moment and stands there.
  void run_for(Duration span);

  /// Adds something observed to the trace.
  void note(std::uint64_t what) noexcept {
    trace_ = (trace_ ^ what) * 0x9E3779B97F4A7C15U;
    trace_ ^= trace_ >> 32;
  }
  [[nodiscard]] std::uint64_t trace_hash() const noexcept { return trace_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

 private:
  // The heap holds small plain entries; the functions stay where they are until they run.
  struct Entry {
    Time at;
    std::uint64_t order;
    std::uint32_t slot;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const noexcept {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };

  std::uint64_t seed_;
  Random random_;
  Time now_{};
  std::uint64_t order_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t trace_ = 0;
  std::vector<Entry> queue_;
  std::vector<std::function<void()>> slots_;
  std::vector<std::uint32_t> free_slots_;
};

}  // namespace lockstep::sim
