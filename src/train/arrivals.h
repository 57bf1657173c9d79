// Arrivals: which gradients backward passes have left on one replica since its last step, and in
// which pass each of them came.
//
// A pass that another optimizer has stepped with leaves gradients behind. They count like the
// others until the next pass, which begins without them.
//
// Threads: the replica's own, or one thread while the replicas wait in a meeting.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::train {

class Arrivals {
 public:
  explicit Arrivals(std::size_t parameters) : states_(parameters), passes_of_(parameters, 0) {}

  [[nodiscard]] bool has(int parameter) const {
    return state(parameter) == State::waiting || state(parameter) == State::left_behind;
  }
  /// Whether its gradient came and was lost to another optimizer, before any other pass.
  [[nodiscard]] bool has_lost(int parameter) const { return state(parameter) == State::lost; }
  /// Parameters in the order in which their gradients came.
  [[nodiscard]] const std::vector<int>& order() const noexcept { return order_; }
  [[nodiscard]] bool any_left_behind() const noexcept { return left_behind_; }
  [[nodiscard]] bool any_waiting() const {
    return std::any_of(order_.begin(), order_.end(),
                       [&](int p) { return state(p) == State::waiting; });
  }

  void add(int parameter, std::int64_t pass) {
    if (order_.empty()) std::replace(states_.begin(), states_.end(), State::lost, State::none);
    state(parameter) = State::waiting;
    passes_of_[static_cast<std::size_t>(parameter)] = pass;
    order_.push_back(parameter);
  }
  void forget(int parameter) {
    state(parameter) = State::none;
    std::erase(order_, parameter);
    const std::int64_t pass = pass_of(parameter);
    if (std::none_of(order_.begin(), order_.end(), [&](int p) { return pass_of(p) == pass; })) {
      std::erase(passes_, pass);
    }
  }
  void lose(int parameter) {
    forget(parameter);
    state(parameter) = State::lost;
  }
  void forget_all() {
    std::fill(states_.begin(), states_.end(), State::none);
    order_.clear();
    passes_.clear();
    left_behind_ = false;
  }

  /// A pass that reached this replica's parameters, whether its gradients are counted or add up.
  void note_pass(std::int64_t pass) {
    if (passes_.empty() || passes_.back() != pass) passes_.push_back(pass);
  }
  [[nodiscard]] const std::vector<std::int64_t>& passes() const noexcept { return passes_; }

  /// Another optimizer steps with these passes; true if gradients of them are here.
  bool leave_behind(const std::vector<std::int64_t>& passes) {
    bool any = false;
    for (const int p : order_) {
      if (std::find(passes.begin(), passes.end(), pass_of(p)) == passes.end()) continue;
      state(p) = State::left_behind;
      any = true;
    }
    left_behind_ = left_behind_ || any;
    return any;
  }
  /// Forgets those left behind and tells which they were.
  std::vector<int> take_left_behind() {
    std::vector<int> taken;
    for (const int p : order_) {
      if (state(p) == State::left_behind) taken.push_back(p);
    }
    for (const int p : taken) forget(p);
    left_behind_ = false;
    return taken;
  }

 private:
  enum class State : std::uint8_t { none, waiting, left_behind, lost };

  [[nodiscard]] State state(int parameter) const {
    return states_[static_cast<std::size_t>(parameter)];
  }
  State& state(int parameter) { return states_[static_cast<std::size_t>(parameter)]; }
  [[nodiscard]] std::int64_t pass_of(int parameter) const {
    return passes_of_[static_cast<std::size_t>(parameter)];
  }

  std::vector<State> states_;            // by parameter
  std::vector<std::int64_t> passes_of_;  // by parameter
  std::vector<int> order_;
  std::vector<std::int64_t> passes_;  // without those whose gradients were all forgotten
  bool left_behind_ = false;
};

}  // namespace lockstep::train
