// OptimizerCore: what stands behind an optimizer: one of torch::optim for each copy of its
// variables, the hooks that see gradients arrive, and the exchange that adds them up.
//
//   backward, on each replica: hook -> arrived() -> exchange
//   apply():  check_complete() on each replica, then, all of them waiting in one meeting, step()
//
// Copy i is replica i's, and there are as many, unless the variables live elsewhere (central
// storage, colocate_vars_with): then a backward pass has no copy of its own to write to, and only
// gradients given by hand take a step, which each copy takes once.
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
  [[nodiscard]] int copies() const noexcept { return static_cast<int>(copies_.size()); }
  [[nodiscard]] torch::optim::Optimizer& optimizer(int copy) const {
    return *copies_[static_cast<std::size_t>(copy)]->optimizer;
  }
  /// The copy that a replica reads and writes.
  [[nodiscard]] int copy_of(int replica) const noexcept {
    return is_copy_per_replica() ? replica : 0;
  }
  [[nodiscard]] const train::Parameters& parameters() const noexcept { return parameters_; }
  [[nodiscard]] const GradientOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::int64_t iterations() const noexcept { return iterations_.load(); }
  [[nodiscard]] std::int64_t skipped() const noexcept { return skipped_.load(); }

  // On the replica's thread.

  /// InvalidUsage if replicas share copies.
  void require_copy_per_replica(const char* method) const;
  /// InvalidUsage naming a trainable parameter that has no gradient.
  void check_complete(int replica) const;
  /// InvalidUsage naming a variable without a gradient, unless that is allowed, and if none has
  /// one.
  [[nodiscard]] KeptGradients keep_defined(const GradientsAndVariables& pairs) const;
  void begin_accumulation(int replica);
  void end_accumulation(int replica) noexcept;

  // By one thread, while the replicas wait.

  void reduce_gradients(Here here);
  /// After reduce_gradients(): `.grad` becomes the sums.
  void bind_gradients();
  /// With NonFinite::error: DataError naming the first parameter whose sum is not finite. An
  /// optimizer that evaluates a loss may have moved its parameters before.
  enum class When { before_step, in_step };
  void require_finite(When when);
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
  struct Copy {
    std::unique_ptr<torch::optim::Optimizer> optimizer;
    std::vector<char> arrived;  // by parameter
    std::vector<int> order;
    int accumulating = 0;  // living Accumulations, which alone count it
  };
  struct Hook {
    std::shared_ptr<torch::autograd::Node> accumulator;
    std::uintptr_t key;
  };

  void arrived(int replica, int parameter);
  void forget_arrivals();
  void hook(int replica, int parameter);
  void compare_workers() const;
  void clip(double limit);
  [[nodiscard]] bool is_copy_per_replica() const noexcept { return copy_per_replica_; }
  /// Each copy's part of the work on a lane of its own, as far as there are lanes.
  void on_copies(const std::function<void(int)>& work);
  void clear_gradients(int copy);
  void check_shape(int replica, int parameter) const;
  /// The first parameter whose sum is not finite, or -1.
  [[nodiscard]] int first_non_finite();
  /// With NonFinite::error: remembers whether a replica's own gradient is finite.
  void look_at_own(int replica, int parameter, const Tensor& gradient);
  /// Whose gradient of this parameter was not, of all workers' replicas; for the report.
  [[nodiscard]] std::string culprits_of(int parameter);
  void look_at_rest(int replica);
  void forget_looks();
  enum class Look { step, skip };
  [[nodiscard]] Look look_at_sums(const ApplyOptions& options);
  enum class Bound { no, yes };  // are the sums what `.grad` is?
  void take_step(Bound bound);
  [[nodiscard]] int number_of(const Variable& variable) const;
  /// InvalidUsage for a gradient of another shape than its variable, or one that is being sent.
  void check_given(const PerReplica<Tensor>& gradient, const Variable& variable) const;

  std::shared_ptr<StrategyCore> strategy_;
  std::vector<ParameterGroup> groups_;
  std::string type_;
  MakeOptimizer make_;
  GradientOptions options_;
  Observer observer_;
  train::Parameters parameters_;
  std::vector<bool> trainable_;  // by parameter, when this was made
  bool copy_per_replica_ = false;
  std::vector<std::unique_ptr<Copy>> copies_;
  std::vector<Hook> hooks_;
  std::vector<std::vector<char>> not_finite_;  // [local replica][parameter]: its own gradient
  std::unique_ptr<train::GradientExchange> exchange_;
  std::atomic<std::int64_t> iterations_ = 0;
  std::atomic<std::int64_t> skipped_ = 0;
};

}  // namespace lockstep::detail
