// OptimizerCore: what stands behind an optimizer: one of torch::optim for each copy of its
// variables, the hooks that see gradients arrive, and the exchange that adds them up.
//
//   backward, on each replica: hook -> arrived() -> exchange
//   apply():  check_complete() on each replica, then, all of them waiting in one meeting, step()
//
// Other optimizers of the strategy are told which passes a step uses: what these have left on their
// parameters is left behind (train/arrivals.h). The gradient of a parameter that two optimizers
// have belongs to the one that steps first, so neither of them sends during backward.
//
// Copy i is replica i's, and there are as many, unless the variables live elsewhere (central
// storage, colocate_vars_with): then a backward pass has no copy of its own to write to, and only
// gradients given by hand take a step, which each copy takes once.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/optimizer.h"
#include "train/arrivals.h"
#include "train/fixed_properties.h"
#include "train/gradient_exchange.h"
#include "train/gradient_hooks.h"
#include "train/optimizer_sharing.h"
#include "train/parameter_watch.h"
#include "train/written_gradients.h"

namespace lockstep::detail {

/// The pairs of apply_gradients() that have a gradient.
struct KeptGradients {
  std::vector<Tensor> gradients;
  std::vector<Variable> variables;
};

class OptimizerCore {
 public:
  /// Makes one that the other optimizers of the strategy know.
  static std::shared_ptr<OptimizerCore> create(Strategy& strategy,
                                               std::vector<ParameterGroup> groups, std::string type,
                                               MakeOptimizer make, const GradientOptions& options);
  OptimizerCore(Strategy& strategy, std::vector<ParameterGroup> groups, std::string type,
                MakeOptimizer make, const GradientOptions& options);
  OptimizerCore(const OptimizerCore&) = delete;
  OptimizerCore& operator=(const OptimizerCore&) = delete;

  [[nodiscard]] StrategyCore& strategy() const noexcept { return *strategy_; }
  [[nodiscard]] int copies() const noexcept { return static_cast<int>(copies_.size()); }
  [[nodiscard]] torch::optim::Optimizer& optimizer(int copy) const {
    return *copies_[static_cast<std::size_t>(copy)].optimizer;
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
  /// See GradientHooks::restore().
  void restore_hooks(int replica);
  /// InvalidUsage naming a trainable parameter that has no gradient.
  void check_complete(int replica);
  /// InvalidUsage naming a variable without a gradient, unless that is allowed, and if none has
  /// one.
  [[nodiscard]] KeptGradients keep_defined(const GradientsAndVariables& pairs) const;
  void begin_accumulation(int replica);
  void end_accumulation(int replica) noexcept;
  /// What an optimizer draws in a step is the same for all copies on all workers: a function of the
  /// strategy's seed, of the optimizer and of the number of the step. Null for torch's own, which
  /// draw nothing.
  [[nodiscard]] tensor::ReplicaGenerator* step_generator(int copy);
  /// See ParameterWatch.
  void begin_evaluations(int replica) { watch(replica).begin_evaluations(); }
  void end_evaluations(int replica) { watch(replica).end_evaluations(); }

  // By one thread, while the replicas wait.

  void reduce_gradients(Here here);
  /// Of the last step.
  [[nodiscard]] const StepResult& result() const noexcept { return result_; }
  /// After reduce_gradients(): `.grad` becomes the sums; of an optimizer that may write to them,
  /// each copy's own.
  void bind_own_gradients();
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
  enum class Compare { asked, made, changed };  // why
  void check_parameters(Compare why = Compare::asked);

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
    std::unique_ptr<tensor::ReplicaGenerator> generator = {};  // of steps; null for torch's own
    int accumulating = 0;                                      // living Accumulations
  };

  [[nodiscard]] Copy& copy(int index) { return copies_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] train::Arrivals& arrivals(int copy) {
    return arrivals_[static_cast<std::size_t>(copy)];
  }
  [[nodiscard]] train::ParameterWatch& watch(int copy) {
    return watches_[static_cast<std::size_t>(copy)];
  }
  void arrived(int replica, int parameter);
  void report_change(int replica);
  void require_equal_if_changed();
  void bind_gradients();
  void separate_gradients();
  [[nodiscard]] GradientsAndVariables sums() const;
  [[nodiscard]] double norm_of_sums();
  void forget_arrivals();
  [[nodiscard]] std::vector<Copy> make_copies() const;
  void compare_workers() const;
  void clip(const ApplyOptions& options);
  [[nodiscard]] bool is_copy_per_replica() const noexcept { return copy_per_replica_; }
  /// Each copy's part of the work on a lane of its own, as far as there are lanes.
  void on_copies(const std::function<void(int)>& work);
  void clear_gradients(int copy);
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
  /// InvalidUsage for a gradient of another shape than its variable, or one that is being sent.
  void check_given(const PerReplica<Tensor>& gradient, const Variable& variable) const;

  std::shared_ptr<StrategyCore> strategy_;
  std::vector<ParameterGroup> groups_;
  std::string type_;
  MakeOptimizer make_;
  GradientOptions options_;
  Observer observer_;
  train::Parameters parameters_;
  std::uint64_t number_ = 0;    // among those of the strategy
  bool is_torchs_own_ = false;  // its steps draw nothing and leave `.grad` as it is
  StepResult result_;
  std::vector<Copy> copies_;
  train::FixedProperties fixed_;
  train::WrittenGradients written_;
  std::vector<train::Arrivals> arrivals_;       // by copy
  std::vector<train::ParameterWatch> watches_;  // by copy
  bool copy_per_replica_ = false;
  std::vector<std::vector<char>> not_finite_;  // [local replica][parameter]: its own gradient
  std::unique_ptr<train::GradientExchange> exchange_;
  std::atomic<std::int64_t> iterations_ = 0;
  std::atomic<std::int64_t> skipped_ = 0;
  // Destroyed first: they refer to the rest.
  std::optional<OptimizerSharing> sharing_;    // made last, but for the hooks
  std::optional<train::GradientHooks> hooks_;  // none if replicas share copies
};

}  // namespace lockstep::detail
