// Is the distributed training the same computation as that of one replica? The first steps are
// computed a second time, on one replica with the rows of all, and compared.
//
//   auto batches = data.iterate();
//   verify_against_single(strategy, net, sgd, step, *batches, {.steps = 3}, 784, 10);
//   for (...)                                  // goes on after the third step
//
// `step` is the function given to run(): step(ReplicaContext&, Net&, Optimizer&, const Batch&), and
// gives a tensor whose sum over all replicas is the loss to compare, or nothing. The last arguments
// are those that `net` was created with. Mismatch names the step and the first tensor that differs:
// the loss, a gradient, a parameter. Rows are added up in another order, so the last digits may
// differ: the tolerances say how much. What is random (dropout) differs, too: verify with eval().
//
// All workers call it at the same place, outside of scope(), before the first step.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/distributed_dataset.h"
#include "lockstep/one_device_strategy.h"
#include "lockstep/optimizer.h"

namespace lockstep {

struct VerifyOptions {
  int steps = 1;
  double relative = 1e-3;
  double absolute = 1e-5;
  Here here = Here::now();  // where the options were written, for messages
};

namespace detail {

/// No strategy is current on this thread for as long as it lives.
class OutsideOfScopes {
 public:
  OutsideOfScopes();
  ~OutsideOfScopes();
  OutsideOfScopes(const OutsideOfScopes&) = delete;
  OutsideOfScopes& operator=(const OutsideOfScopes&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// What one step left, by the names of its tensors.
struct StepRecord {
  std::vector<std::pair<std::string, Tensor>> tensors;
};

/// An optimizer of the same type, with the options that the other has now, over the variables of
/// the same names. InvalidUsage naming one that is not among them.
DistributedOptimizer optimizer_like(const DistributedOptimizer& other, Strategy& strategy,
                                    const std::vector<Variable>& variables);
/// Keeps the summed gradients of steps from here on; the last step's as "gradient of NAME".
class GradientRecorder {
 public:
  explicit GradientRecorder(const DistributedOptimizer& optimizer);
  ~GradientRecorder();
  GradientRecorder(const GradientRecorder&) = delete;
  GradientRecorder& operator=(const GradientRecorder&) = delete;
  [[nodiscard]] const std::vector<std::pair<std::string, Tensor>>& last() const { return last_; }

 private:
  DistributedOptimizer optimizer_;
  std::vector<std::pair<std::string, Tensor>> last_;
};

void require_unused(const DistributedOptimizer& optimizer, const VerifyOptions& options);
/// Parameters and buffers, which of them are frozen, and for each submodule whether it trains.
void copy_state(const torch::nn::Module& from, torch::nn::Module& to);
/// A net of one replica; libtorch's default generator is left as it is.
template <class Net, class... Args>
Model<Net> create_beside(Strategy& strategy, const Args&... args) {
  const DefaultGeneratorState as_before;
  return strategy.create<Net>(args...);
}
void add_parameters(StepRecord& record, const std::vector<Variable>& variables);
/// Mismatch naming the first tensor in which they differ.
void compare_steps(const StepRecord& distributed, const StepRecord& single, int step,
                   const VerifyOptions& options);

/// One step of a strategy, recorded.
template <class Net, class Step, class Batch>
StepRecord recorded_step(Strategy& strategy, const RunOptions& options, const Model<Net>& net,
                         const DistributedOptimizer& optimizer, const GradientRecorder& gradients,
                         const Step& step, const Batch& batch, Here here) {
  StepRecord record;
  using Result = decltype(strategy.run(options, step, net, optimizer, batch));
  if constexpr (std::is_void_v<Result>) {
    strategy.run(options, step, net, optimizer, batch);
  } else {
    const auto losses = strategy.run(options, step, net, optimizer, batch);
    const auto sums = strategy.run([](const Tensor& loss) { return loss.detach().sum(); }, losses);
    record.tensors.emplace_back("loss", strategy.reduce(ReduceOp::sum, sums, here));
  }
  record.tensors.insert(record.tensors.end(), gradients.last().begin(), gradients.last().end());
  add_parameters(record, net.variables());
  return record;
}

}  // namespace detail

template <class Net, class Step, class T, class... Args>
void verify_against_single(Strategy& strategy, const Model<Net>& net,
                           const DistributedOptimizer& optimizer, const Step& step,
                           DistributedIterator<T>& batches, const VerifyOptions& options,
                           const Args&... args) {
  detail::require_unused(optimizer, options);
  const detail::OutsideOfScopes outside;
  OneDeviceStrategy single("CPU:0");
  const Model<Net> alone = detail::create_beside<Net>(single, args...);
  detail::copy_state(detail::module_of(net[0]), detail::module_of(alone[0]));
  const DistributedOptimizer single_optimizer =
      detail::optimizer_like(optimizer, single, alone.variables());
  const detail::GradientRecorder gradients(optimizer);
  const detail::GradientRecorder single_gradients(single_optimizer);
  for (int i = 0; i < options.steps; ++i) {
    const auto batch = batches.get_next();
    const RunOptions all_rows{.global_batch_size = batch.global_size()};
    // The rows of all replicas, in their order.
    std::vector<std::vector<Tensor>> leaves;
    for (int r = 0; r < batch.size(); ++r) leaves.push_back(detail::tensors_of(batch[r]));
    std::vector<Tensor> whole;
    for (std::size_t k = 0; k < leaves.front().size(); ++k) {
      std::vector<Tensor> each;
      for (const auto& own : leaves) each.push_back(own[k]);
      whole.push_back(strategy.gather(PerReplica<Tensor>(std::move(each), batch.devices()),
                                      /*axis=*/0, options.here));
    }
    const T together = detail::with_tensors(T(batch[0]), whole);
    const auto record = detail::recorded_step(strategy, all_rows, net, optimizer, gradients, step,
                                              batch, options.here);
    const auto expected = detail::recorded_step(single, all_rows, alone, single_optimizer,
                                                single_gradients, step, together, options.here);
    detail::compare_steps(record, expected, i, options);
  }
}

}  // namespace lockstep
