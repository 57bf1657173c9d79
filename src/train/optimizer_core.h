// OptimizerCore: what stands behind an optimizer: one of torch::optim for each local replica, the
// hooks that see gradients arrive, and the exchange that adds them up.
//
//   backward, on each replica: hook -> arrived() -> exchange
//   apply():  check_complete() on each replica, then, all of them waiting in one meeting, step()
#pragma once

#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/optimizer.h"
#include "train/gradient_exchange.h"

namespace lockstep::detail {

/// The pairs of apply_gradients() that have a gradient.
struct KeptGradients {
  std::vector<Tensor> gradients;
  std::vector<Variable> variables;
};

class OptimizerCore {
 public:
  OptimizerCore(Strategy& strategy, std::vector<ParameterGroup> groups, std::string type,
                MakeOptimizer make, const GradientOptions& options);
  ~OptimizerCore();
  OptimizerCore(const OptimizerCore&) = delete;
  OptimizerCore& operator=(const OptimizerCore&) = delete;

  [[nodiscard]] StrategyCore& strategy() const noexcept { return *strategy_; }
  [[nodiscard]] int replicas() const noexcept { return static_cast<int>(replicas_.size()); }
  [[nodiscard]] torch::optim::Optimizer& optimizer(int replica) const {
    return *replicas_[static_cast<std::size_t>(replica)]->optimizer;
  }
  [[nodiscard]] const train::Parameters& parameters() const noexcept { return parameters_; }
  [[nodiscard]] std::int64_t iterations() const noexcept { return iterations_.load(); }

  // On the replica's thread.

  /// InvalidUsage naming a trainable parameter that has no gradient.
  void check_complete(int replica) const;
  /// InvalidUsage naming a variable without a gradient, unless that is allowed, and if none has
  /// one.
  [[nodiscard]] KeptGradients keep_defined(const GradientsAndVariables& pairs) const;
  /// After reduce_gradients(): `.grad` becomes the sums.
  void bind_gradients(int replica) { exchange_->bind(replica); }
  void begin_accumulation(int replica);
  void end_accumulation(int replica) noexcept;

  // By one thread, while the replicas wait.

  void reduce_gradients(Here here);
  /// Every replica takes the step with the sums; then its gradients are no more.
  void step(const ApplyOptions& options);
  void clear_gradients();
  void count_step();
  void distributed_apply(const ReplicaGradientsAndVariables& pairs);
  void discard();
  void check_parameters();

  /// Called with the summed gradients of each step, before it is taken; {}: nobody.
  using Observer = std::function<void(const train::Parameters&)>;
  void observe(Observer observer) { observer_ = std::move(observer); }
  /// The same type and options over other variables, in the same order.
  [[nodiscard]] std::shared_ptr<OptimizerCore> over(Strategy& strategy,
                                                    const std::vector<Variable>& variables) const;

  [[nodiscard]] std::vector<OptimizerVariable> variables() const;
  [[nodiscard]] std::string explain() const;

 private:
  struct Replica {
    std::unique_ptr<torch::optim::Optimizer> optimizer;
    std::vector<char> arrived;  // by parameter
    std::vector<int> order;
    int accumulating = 0;
  };
  struct Hook {
    std::shared_ptr<torch::autograd::Node> accumulator;
    std::uintptr_t key;
  };

  void arrived(int replica, int parameter);
  void hook(int replica, int parameter);
  void compare_workers() const;
  void clip(double limit);
  enum class Bound { no, yes };  // are the sums what `.grad` is?
  void take_step(Bound bound);
  [[nodiscard]] int number_of(const Variable& variable) const;

  std::shared_ptr<StrategyCore> strategy_;
  std::vector<ParameterGroup> groups_;
  std::string type_;
  MakeOptimizer make_;
  GradientOptions options_;
  Observer observer_;
  train::Parameters parameters_;
  std::vector<bool> trainable_;  // by parameter, when this was made
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<Hook> hooks_;
  std::unique_ptr<train::GradientExchange> exchange_;
  std::atomic<std::int64_t> iterations_ = 0;
};

}  // namespace lockstep::detail
