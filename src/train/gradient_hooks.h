// GradientHooks: calls the optimizer before and after a backward pass accumulates the gradient of a
// parameter.
//
// The parameters outlive this object. Its destructor removes the hooks; no backward pass may be
// running then.
//
// Threads: the callbacks run on the replica's own thread, inside its backward pass. restore() is
// called on the replica's own thread.
#pragma once

// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <functional>
#include <memory>
#include <vector>

#include "train/parameters.h"

namespace lockstep::train {

class GradientHooks {
 public:
  struct Callbacks {
    std::function<void(int replica)> before;
    std::function<void(int replica, int parameter)> after;
  };

  GradientHooks(const Parameters& parameters, Callbacks callbacks);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  void add(int replica, int parameter);
  /// A parameter that was loaded or converted (torch::load, to()) has a new accumulator without a
  /// hook. Moves the hooks of this replica to the accumulators that the parameters have now.
  void restore(int replica);

 private:
  struct Hook {
    int parameter;
    std::shared_ptr<torch::autograd::Node> accumulator;
    std::uintptr_t after;
    const torch::autograd::FunctionPreHook* before;
  };
  class Before;

  [[nodiscard]] Hook hook(int replica, int parameter) const;
  static void unhook(const Hook& hook);

  const Parameters& parameters_;
  Callbacks callbacks_;
  std::vector<std::vector<Hook>> hooks_;  // by replica
};

}  // namespace lockstep::train
