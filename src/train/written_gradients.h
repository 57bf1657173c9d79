// WrittenGradients: warns, once for each optimizer, of a program that writes to `.grad` between
// backward and apply(). Such a program probably clips each replica's own gradients and means to
// clip their sum.
//
// Threads: of one replica, its own thread; different replicas at the same time.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "strategy/core.h"
#include "train/gradient_sample.h"
#include "train/parameters.h"

namespace lockstep::train {

class WrittenGradients {
 public:
  /// Both outlive this object.
  WrittenGradients(const detail::StrategyCore& strategy, const Parameters& parameters);

  /// The gradient has arrived. Takes a sample if there may be something to warn of.
  void take_sample(int replica, int parameter);
  /// The gradient has arrived and is sent already, so a later write is an error and not a warning.
  void drop_sample(int replica, int parameter);
  /// Compares the gradients that have arrived with their samples. `optimizer` is for the message.
  void warn_of_writes(int replica, const std::vector<int>& arrived, const std::string& optimizer);

 private:
  [[nodiscard]] bool is_over() const noexcept;  // there is nothing to warn of any more

  const detail::StrategyCore& strategy_;
  const Parameters& parameters_;
  std::vector<std::vector<GradientSample>> samples_;  // [copy][parameter]
  std::atomic<bool> warned_ = false;
};

}  // namespace lockstep::train
