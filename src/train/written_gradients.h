// WrittenGradients: finds a program that writes to `.grad` between backward and apply().
//
//   sent after backward:   what was written counts. It is warned of, once for each optimizer: such
//                          a program probably clips each replica's own gradients and means to clip
//                          their sum.
//   sent during backward:  it comes too late, and is refused.
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
  enum class Sent { after_backward, during_backward };

  /// Both outlive this object.
  WrittenGradients(const detail::StrategyCore& strategy, const Parameters& parameters);

  /// The gradient has arrived. Takes a sample if there may be something to say.
  void take_sample(int replica, int parameter, Sent sent);
  /// Compares the gradients that have arrived with their samples. InvalidUsage naming the parameter
  /// if they were sent during backward; else a warning. `optimizer` is for the warning.
  void check(int replica, const std::vector<int>& arrived, Sent sent, const std::string& optimizer);

 private:
  [[nodiscard]] bool is_quiet(Sent sent) const noexcept;  // there is nothing to say any more
  [[nodiscard]] GradientSample& sample(int replica, int parameter) {
    return samples_[static_cast<std::size_t>(replica)][static_cast<std::size_t>(parameter)];
  }
  void refuse_change(int replica, int parameter);
  void warn_of_write(int replica, int parameter, const std::string& optimizer);

  const detail::StrategyCore& strategy_;
  const Parameters& parameters_;
  std::vector<std::vector<GradientSample>> samples_;  // [copy][parameter]
  std::atomic<bool> warned_ = false;
};

}  // namespace lockstep::train
