// Elements that are made before they are asked for.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "lockstep/detail/background.h"
#include "lockstep/detail/outcome.h"

namespace lockstep::detail {

/// Calls make() on a thread of its own, ahead of next() by at most `count` elements; none ends it.
template <class T>
class Ahead {
 public:
  Ahead(std::size_t count, std::function<std::optional<T>()> make)
      : make_(std::move(make)), feeder_(count, [this] { return produce(); }) {}

  std::optional<T> next() {
    if (!feeder_.wait_for_item()) return std::nullopt;
    Outcome<T> first = [&] {
      const std::lock_guard lock(mutex_);
      Outcome<T> taken = std::move(made_.front());
      made_.pop_front();
      return taken;
    }();
    feeder_.taken();
    return std::move(first).get();
  }

 private:
  bool produce() {
    auto outcome = Outcome<T>::of(make_);
    if (!outcome.element && !outcome.error) return false;
    const std::lock_guard lock(mutex_);
    made_.push_back(std::move(outcome));
    return true;
  }

  std::function<std::optional<T>()> make_;
  std::mutex mutex_;
  std::deque<Outcome<T>> made_;
  Feeder feeder_;  // ends first
};

}  // namespace lockstep::detail
