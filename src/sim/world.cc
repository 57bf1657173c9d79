#include "sim/world.h"

#include <algorithm>
#include <utility>

namespace lockstep::sim {

void World::schedule(Time at, std::function<void()> event) {
  std::uint32_t slot = 0;
  if (free_slots_.empty()) {
    slot = static_cast<std::uint32_t>(slots_.size());
    slots_.push_back(std::move(event));
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[slot] = std::move(event);
  }
  queue_.push_back({std::max(at, now_), order_++, slot});
  std::push_heap(queue_.begin(), queue_.end(), Later());
}

bool World::step() {
  if (queue_.empty()) return false;
  std::pop_heap(queue_.begin(), queue_.end(), Later());
  const Entry entry = queue_.back();
  queue_.pop_back();
  now_ = entry.at;
  ++steps_;
  note(static_cast<std::uint64_t>(entry.at.time_since_epoch().count()));
  note(entry.order);
  // Moved out first: the event may schedule others, which can move the slots.
  const std::function<void()> event = std::exchange(slots_[entry.slot], nullptr);
  free_slots_.push_back(entry.slot);
  event();
  return true;
}

bool World::run_until(FunctionRef<bool()> holds, Deadline deadline) {
  for (;;) {
    if (holds()) return true;
    if (next() > deadline.time() || !step()) break;
  }
  if (!deadline.is_never()) now_ = std::max(now_, deadline.time());
  return false;
}

void World::run_for(Duration span) {
  run_until([] { return false; }, Deadline::after(*this, span));
}

}  // namespace lockstep::sim
