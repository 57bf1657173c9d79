// OptimizerCore: the implementation of an optimizer. It has one torch::optim::Optimizer for each
// copy of its variables, hooks that see gradients arrive, and an exchange that sums them.
//
//   backward, on each replica:  GradientHooks -> arrived() -> GradientExchange
//   apply():                    1. check_complete() on each replica
//                               2. reduce_gradients() and step(), by one thread while all wait
//
// Where its parts are:
//   optimizer_core.cc       construction, and the step that one thread takes while replicas wait
//   optimizer_backward.cc   the replica's own thread: arrivals, and checks before the step
//   optimizer_traits.cc     compare_workers()
//   check_parameters.cc     check_parameters()
//   optimizer_variables.cc  variables()
// Parts with state of their own are classes: OptimizerSharing (other optimizers of the strategy),
// ParameterWatch, FixedProperties and WrittenGradients (changes by the user), FiniteCheck (NaN and
// infinity).
//
// Usually there are as many copies as replicas, and copy i belongs to replica i. Variables with
// central storage or colocate_vars_with are different: a replica has no copy of its own that its
// backward pass could write to. Such an optimizer steps only with gradients given by hand, once for
// each copy.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/optimizer.h"
#include "train/arrivals.h"
#include "train/finite_check.h"
#include "train/fixed_properties.h"
#include "train/gradient_exchange.h"
#include "train/gradient_hooks.h"
#include "train/optimizer_options.h"
#include "train/optimizer_sharing.h"
#include "train/parameter_watch.h"
#include "train/written_gradients.h"

namespace lockstep::detail {

class OptimizerCore {
 public:
  /// Makes one and joins it with the other optimizers of the strategy.
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
  /// What scales a step of these options (step_scale.h).
  [[nodiscard]] std::string describe_scale(const ApplyOptions& options,
                                           std::optional<std::int64_t> global_batch_size) const;
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
  void begin_accumulation(int replica);
  void end_accumulation(int replica) noexcept;
  /// For the random numbers of a step. They are the same for all copies on all workers: a function
  /// of the strategy's seed, of the optimizer and of the number of the step. Null for torch's own
  /// optimizers, which draw none.
  [[nodiscard]] tensor::ReplicaGenerator* step_generator(int copy);
  /// See ParameterWatch.
  void begin_evaluations(int replica) { watch(replica).begin_evaluations(); }
  void end_evaluations(int replica) { watch(replica).end_evaluations(); }

  // By one thread, while the replicas wait.

  /// `scale`: see step_scale.h.
  void reduce_gradients(Here here, std::string scale);
  /// Of the last step.
  [[nodiscard]] const StepResult& result() const noexcept { return result_; }
  /// After reduce_gradients(): `.grad` becomes the sums. Each copy gets its own memory if the
  /// optimizer may write to them.
  void bind_own_gradients();
  /// With NonFinite::error: DataError naming the first parameter whose sum is not finite.
  /// `in_step`: the optimizer evaluates a loss and may have moved its parameters already.
  enum class When { before_step, in_step };
  void require_finite(When when);
  /// Steps every copy with the sums, and clears the gradients.
  void step(const ApplyOptions& options);
  void clear_gradients();
  void count_step();
  void distributed_apply(const ReplicaGradientsAndVariables& pairs, const ApplyOptions& options);
  /// By all workers together, with the same number.
  void set_iterations(std::int64_t steps);
  void discard();
  enum class Compare { asked, made, changed };  // the reason, for the message
  void check_parameters(Compare why = Compare::asked);

  /// Called with the summed gradients of each step, before it is taken; {}: none.
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
  [[nodiscard]] train::WrittenGradients::Sent when_sent() const;
  void report_change(int replica);
  void require_equal_if_changed(const ApplyOptions& options);
  void require_same_options() const;
  [[nodiscard]] std::vector<std::int64_t> gathered_digests(
      const std::function<std::int64_t(int copy, int parameter)>& digest, const char* what);
  void compare_parameters(Compare why);
  void compare_states();
  void bind_gradients();
  void separate_gradients();
  [[nodiscard]] GradientsAndVariables sums() const;
  void forget_arrivals();
  [[nodiscard]] std::vector<Copy> make_copies() const;
  void compare_workers() const;
  [[nodiscard]] bool is_copy_per_replica() const noexcept { return copy_per_replica_; }
  /// Runs work(copy) for each copy, spread over the lanes.
  void on_copies(const std::function<void(int)>& work);
  void clear_gradients(int copy);
  enum class Look { step, skip };
  [[nodiscard]] Look look_at_sums(const ApplyOptions& options);
  enum class Bound { no, yes };  // whether `.grad` is the sum already
  void take_step(Bound bound);
  void step_copy(int copy);

  std::int64_t equal_after_ = 0;  // steps after which the parameters were last compared
  std::shared_ptr<StrategyCore> strategy_;
  std::vector<ParameterGroup> groups_;
  std::string type_;
  MakeOptimizer make_;
  GradientOptions options_;
  Observer observer_;
  train::Parameters parameters_;
  std::uint64_t number_ = 0;    // of this optimizer, in the strategy
  bool is_torchs_own_ = false;  // its steps draw no random numbers and do not write to `.grad`
  StepResult result_;
  std::vector<Copy> copies_;
  train::MadeOptions made_options_;
  train::FixedProperties fixed_;
  train::WrittenGradients written_;
  train::FiniteCheck finite_;
  std::vector<train::Arrivals> arrivals_;       // by copy
  std::vector<train::ParameterWatch> watches_;  // by copy
  bool copy_per_replica_ = false;
  std::unique_ptr<train::GradientExchange> exchange_;
  std::atomic<std::int64_t> iterations_ = 0;
  std::atomic<std::int64_t> skipped_ = 0;
  // Destroyed first: they refer to the rest.
  std::optional<OptimizerSharing> sharing_;    // made last, but for the hooks
  std::optional<train::GradientHooks> hooks_;  // none if replicas share copies
};

}  // namespace lockstep::detail
