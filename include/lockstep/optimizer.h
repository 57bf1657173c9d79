// Optimizers: one of torch::optim for each replica, which take the same step with the gradients of
// all replicas added up.
//
//   auto sgd = strategy.optimizer<torch::optim::SGD>(net, torch::optim::SGDOptions(0.05));
//   strategy.run([](ReplicaContext& replica, Net& own, Optimizer& opt, const Batch& b) {
//     (loss_sum(own, b) / replica.global_batch_size()).backward();
//     opt.apply(replica);                 // sums over all replicas of all workers, then steps
//   }, net, sgd, batch);
//
// The arithmetic is torch::optim's, and nothing scales a loss: gradients are summed. Before a
// backward pass `.grad` is undefined, and apply() leaves it so. A second backward pass before
// apply() is InvalidUsage, unless it is inside an Accumulation. A trainable parameter without a
// gradient is InvalidUsage that names it, unless unused parameters are allowed.
//
// A strategy may have several optimizers, over the same parameters or others (docs/gan.md). A pass
// that one of them has stepped with leaves gradients behind on the parameters of the others: their
// own apply() uses them, discard() drops them, and so does the next backward pass.
//
// Variables that replicas share (CentralStorageStrategy) have no `.grad` for each of them:
// gradients of those are computed with torch::autograd::grad() and given to apply_gradients().
#pragma once

// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/coll/options.h"
#include "lockstep/model.h"
#include "lockstep/strategy.h"

namespace lockstep {

/// When the gradients of workers are sent.
enum class Overlap : std::uint8_t {
  automatic,  // during backward over a network, after it within a host
  always,
  never,
};

/// What happens to a step whose summed gradients have a NaN or an infinity: on all replicas of all
/// workers the same. All but `allow` read the sums once more.
enum class NonFinite : std::uint8_t {
  allow,  // it is taken
  skip,   // parameters, state and iterations() stay as they are; skipped() counts it
  error,  // DataError naming the first parameter and the replicas it is not finite on; before the
          // step, but inside of one with a closure. Reads each replica's own gradients, too
};

struct GradientOptions {
  /// A trainable parameter that has no gradient counts as zero; one that no replica of any worker
  /// has a gradient for is left alone. Gradients then leave after backward, whatever `overlap`
  /// says: when the last one has come is not known before.
  bool allow_unused = false;
  Overlap overlap = Overlap::automatic;
  /// Gradients are sent together until a bucket is larger; 0: chosen (explain() says which).
  std::int64_t bucket_bytes = 0;
  /// Gradients of float32 between workers as 16 bits: half the bytes, rounded twice; other bits
  /// than without, and than with other layouts of replicas and workers.
  coll::WireType wire = coll::WireType::same;
  /// Every so many steps all replicas compare their parameters; 0: never. Mismatch names the steps
  /// since the last comparison, the first parameter that differs, which replicas have the same
  /// value of it, and as culprits those that are unlike most others; of two, both.
  int check_every = 100;
  NonFinite non_finite = NonFinite::allow;
};

/// Parameters with options of their own.
struct ParameterGroup {
  std::vector<Variable> variables;
  std::shared_ptr<const torch::optim::OptimizerOptions> options = {};  // null: the optimizer's

  ParameterGroup(std::vector<Variable> its_variables) : variables(std::move(its_variables)) {}
  template <class Options>
  ParameterGroup(std::vector<Variable> its_variables, const Options& its_options)
      : variables(std::move(its_variables)), options(std::make_shared<Options>(its_options)) {}
};

/// State of an optimizer: of a parameter (slot), or of the optimizer as a whole.
struct OptimizerVariable {
  std::string name;  // "weight/exp_avg"; "beta1_power"
  bool slot = true;
  std::vector<Tensor> components;  // one for each copy that this process has of its variables
};

using GradientsAndVariables = std::vector<std::pair<Tensor, Variable>>;
using ReplicaGradientsAndVariables = std::vector<std::pair<PerReplica<Tensor>, Variable>>;

struct ApplyOptions {
  /// The summed gradients are scaled so that their norm over all parameters is at most this, as
  /// tf.clip_by_global_norm does: by limit / max(norm, limit). One of the two, or none.
  std::optional<double> clip_global_norm = {};
  /// The same as torch's clip_grad_norm_ does: by min(1, limit / (norm + 1e-6)).
  std::optional<double> clip_grad_norm = {};
  /// The result tells the norm of the summed gradients, which costs one more pass over them.
  /// Clipping tells it anyway.
  bool global_norm = false;
  /// Called once on each worker with the summed gradients, before they are clipped; a variable that
  /// no replica has a gradient for is not among them. What is written to them counts, for all
  /// copies: every worker must write the same. They are valid during the call.
  std::function<void(const GradientsAndVariables&)> inspect = {};
};

/// What a step has to tell; equal on all replicas of all workers.
struct StepResult {
  bool taken = true;  // false: skipped, see NonFinite
  /// Of the summed gradients over all parameters, before they were clipped; if it was asked for.
  std::optional<double> global_norm = {};
};

namespace detail {
class OptimizerCore;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(
    std::vector<torch::optim::OptimizerParamGroup>)>;
std::shared_ptr<OptimizerCore> make_optimizer(Strategy& strategy,
                                              std::vector<ParameterGroup> groups,
                                              const std::string& type, const MakeOptimizer& make,
                                              const GradientOptions& options, Here here);
}  // namespace detail

/// While it lives, backward passes of its replica add up and nothing is sent.
class [[nodiscard]] Accumulation {
 public:
  Accumulation(Accumulation&& other) noexcept;
  Accumulation& operator=(Accumulation&&) = delete;
  ~Accumulation();

 private:
  friend class Optimizer;
  Accumulation(std::shared_ptr<detail::OptimizerCore> core, int index);
  std::shared_ptr<detail::OptimizerCore> core_;
  int index_;
};

/// What a step function gets: the optimizer of its replica.
class Optimizer {
 public:
  /// Waits for all replicas, sums their gradients and lets every copy take the step.
  StepResult apply(ReplicaContext& replica, const ApplyOptions& options = {},
                   Here here = Here::now());
  /// For optimizers that evaluate the loss several times (LBFGS): closure clears nothing, computes
  /// the loss, calls backward and gives the loss; what it gives is summed over the replicas. The
  /// result is the summed loss of the first evaluation.
  Tensor apply(ReplicaContext& replica, const std::function<Tensor()>& closure,
               Here here = Here::now());
  /// Gradients by hand, in replica context: sums them over the replicas and steps the variables
  /// given. An undefined gradient counts as an unused parameter. The norm is that of the sums.
  StepResult apply_gradients(const GradientsAndVariables& pairs, const ApplyOptions& options = {},
                             Here here = Here::now());

  /// For all replicas together: forgets the gradients of backward passes since the last step.
  void discard(ReplicaContext& replica, Here here = Here::now());
  Accumulation accumulate();

  /// This replica's, for reading; a change made to one replica alone makes copies differ. A group
  /// of parameters that is added to it, or another option than the other replicas', is InvalidUsage
  /// at the next step. Another state, such as one that was loaded, is a Mismatch.
  [[nodiscard]] torch::optim::Optimizer& local() const noexcept;

  Optimizer(std::shared_ptr<detail::OptimizerCore> core, int index);

 private:
  void require_own(const ReplicaContext& replica) const;

  std::shared_ptr<detail::OptimizerCore> core_;
  int index_;
};

/// A scheduler of torch::optim for each replica's optimizer, stepped together.
class Scheduler {
 public:
  /// In cross-replica context.
  void step();

  Scheduler(std::shared_ptr<detail::OptimizerCore> core,
            std::vector<std::shared_ptr<torch::optim::LRScheduler>> each)
      : core_(std::move(core)), each_(std::move(each)) {}

 private:
  std::shared_ptr<detail::OptimizerCore> core_;
  std::vector<std::shared_ptr<torch::optim::LRScheduler>> each_;
};

/// All replicas' optimizers of this process. Copies are the same optimizer.
class DistributedOptimizer {
 public:
  [[nodiscard]] Optimizer& select_replica(int replica) const;
  [[nodiscard]] int size() const noexcept;

  /// In cross-replica context: sums the gradients over the replicas of all workers, and steps.
  StepResult distributed_apply(Strategy& strategy, const ReplicaGradientsAndVariables& pairs,
                               const ApplyOptions& options = {}, Here here = Here::now()) const;
  /// In a step function: what its replica's optimizer does. Elsewhere InvalidUsage, which names
  /// the other.
  StepResult apply_gradients(const GradientsAndVariables& pairs, const ApplyOptions& options = {},
                             Here here = Here::now()) const;

  /// Slots ("weight/momentum_buffer") and state of the whole, as far as steps have made it.
  /// Unsupported for an optimizer that is not derived from one of torch's own.
  [[nodiscard]] std::vector<OptimizerVariable> variables() const;
  /// Steps taken, and steps skipped because a gradient was not finite.
  [[nodiscard]] std::int64_t iterations() const noexcept;
  [[nodiscard]] std::int64_t skipped() const noexcept;
  /// In cross-replica context, on all workers: a program that goes on from a checkpoint sets the
  /// steps taken. The random numbers of an optimizer that draws them depend on it.
  void set_iterations(std::int64_t steps, Here here = Here::now()) const;
  /// Of the first parameter group; set for all, in cross-replica context.
  [[nodiscard]] double learning_rate() const;
  void set_learning_rate(double rate) const;
  template <class S, class... Args>
  Scheduler scheduler(const Args&... args) const {
    std::vector<std::shared_ptr<torch::optim::LRScheduler>> each;
    for (torch::optim::Optimizer* copy : copies()) {
      each.push_back(std::make_shared<S>(*copy, args...));
    }
    return {core_, std::move(each)};
  }
  /// In cross-replica context: all replicas of all workers compare their parameters. Mismatch names
  /// the replica and the first parameter that differ.
  void check_parameters(Here here = Here::now()) const;
  /// How gradients travel: buckets, their order, and why.
  [[nodiscard]] std::string explain() const;
  /// Forgets the gradients of an unfinished step, after an exception; on every worker.
  void reset(Here here = Here::now()) const;

  explicit DistributedOptimizer(std::shared_ptr<detail::OptimizerCore> core);
  [[nodiscard]] detail::OptimizerCore& core() const noexcept { return *core_; }

 private:
  [[nodiscard]] std::vector<torch::optim::Optimizer*> copies() const;

  std::shared_ptr<detail::OptimizerCore> core_;
  std::shared_ptr<std::vector<Optimizer>> each_;
};

namespace detail {

template <class Net>
std::vector<ParameterGroup> groups_of(const Model<Net>& net) {
  return {ParameterGroup(net.variables())};
}
inline std::vector<ParameterGroup> groups_of(const std::vector<Variable>& variables) {
  return {ParameterGroup(variables)};
}
inline std::vector<ParameterGroup> groups_of(std::vector<ParameterGroup> groups) { return groups; }

/// What an optimizer can be made over.
template <class Target>
concept OptimizerTarget = requires(const Target& target) {
  groups_of(target);
};

std::string type_name(const std::type_info& type);

}  // namespace detail

template <class T, class Target, class Options, class Gradients>
DistributedOptimizer Strategy::optimizer(const Target& target, const Options& options,
                                         const Gradients& gradients, Here here) {
  static_assert(std::is_same_v<Gradients, GradientOptions>,
                "lockstep: the third argument of optimizer() is a GradientOptions");
  static_assert(!std::is_same_v<Target, std::vector<Tensor>>,
                "lockstep: optimizer() is given a vector of tensors: parameters() are those of one "
                "copy only, and the other replicas would not be trained. Give the model itself, "
                "optimizer<T>(net, options), or net.variables()");
  static_assert(detail::OptimizerTarget<Target> || std::is_same_v<Target, std::vector<Tensor>>,
                "lockstep: the first argument of optimizer() is a Model that strategy.create() "
                "made, a std::vector<Variable>, or a std::vector<ParameterGroup>; a single "
                "replica's module (net[0]) is none of them");
  static_assert(
      std::is_constructible_v<T, std::vector<torch::optim::OptimizerParamGroup>, const Options&>,
      "lockstep: the second argument of optimizer<T>() is not what T is constructed "
      "from after its parameters: give T's own options, as SGDOptions(0.1) for SGD");
  if constexpr (detail::OptimizerTarget<Target>) {
    const auto make = [options](std::vector<torch::optim::OptimizerParamGroup> groups) {
      return std::make_unique<T>(std::move(groups), options);
    };
    return DistributedOptimizer(detail::make_optimizer(
        *this, detail::groups_of(target), detail::type_name(typeid(T)), make, gradients, here));
  }
}

}  // namespace lockstep
