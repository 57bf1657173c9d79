// Models: a torch::nn::Module with one copy for each replica, equal everywhere.
//
//   auto net = strategy.create<Net>(784, 10);     // a module class, or a TORCH_MODULE holder
//   strategy.run([](Net& own, const Tensor& x) { return own->forward(x); }, net, batch);
//   for (const Variable& w : net.variables()) ...   // the parameters, as mirrored variables
//
// The first copy is constructed as it would be alone; the others take over its parameters and
// buffers, and those of other workers the chief's, and all compare digests. Constructing leaves
// libtorch's default generator as one construction would. A parameter that a module has under two
// names is one variable.
//
// Buffers (running statistics of batch normalisation) belong to their replica: each follows the
// rows that its replica saw. sync_buffers() makes them equal, before saving or evaluating.
#pragma once

// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <ATen/core/Generator.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/strategy.h"

namespace lockstep {

enum class BufferSync : std::uint8_t { first_replica, mean };

namespace detail {

/// Saves libtorch's default generator and puts it back.
class DefaultGeneratorState {
 public:
  DefaultGeneratorState();
  ~DefaultGeneratorState();
  DefaultGeneratorState(const DefaultGeneratorState&) = delete;
  DefaultGeneratorState& operator=(const DefaultGeneratorState&) = delete;

 private:
  Tensor state_;
};

/// Makes `copy` equal to `first`: parameters and buffers by name. InvalidUsage if they differ in
/// names, shapes or element types.
void take_over(torch::nn::Module& copy, const torch::nn::Module& first, int replica);
/// The chief's parameters and buffers, and whether all workers have the same net; nothing to do for
/// one worker.
void take_from_chief(Strategy& strategy, torch::nn::Module& first);
/// Mismatch naming the first replica, of all workers, whose parameters and buffers are not those of
/// replica 0.
void require_equal_copies(Strategy& strategy, const std::vector<torch::nn::Module*>& copies);
/// The parameters of all copies as variables; one that appears twice in a module is one variable.
std::vector<Variable> parameters_as_variables(Strategy& strategy,
                                              const std::vector<torch::nn::Module*>& copies);

/// Every copy's parameters become those of the chief's first copy.
void sync_parameters(StrategyCore& core, const std::vector<torch::nn::Module*>& copies, Here here);
void sync_buffers(StrategyCore& core, const std::vector<torch::nn::Module*>& copies, BufferSync how,
                  Here here);
std::uint64_t digest_of(const torch::nn::Module& module);

template <class Net>
torch::nn::Module& module_of(Net& net) {
  if constexpr (std::is_base_of_v<torch::nn::Module, Net>) {
    return net;
  } else {
    return *net;
  }
}

}  // namespace detail

template <class Net>
class Model {
 public:
  [[nodiscard]] int size() const noexcept { return static_cast<int>(copies_->size()); }
  /// A replica's copy.
  [[nodiscard]] Net& operator[](int replica) const {
    if (replica < 0 || replica >= size()) detail::no_such_component("Model", replica, size());
    return *(*copies_)[static_cast<std::size_t>(replica)];
  }
  [[nodiscard]] Net& select_replica(int replica) const { return (*this)[replica]; }
  /// Trainable and frozen parameters, in the module's order.
  [[nodiscard]] const std::vector<Variable>& variables() const noexcept { return *variables_; }

  /// In cross-replica context, on every worker: every copy's parameters become those of replica 0.
  /// Buffers stay as they are: sync_buffers() copies those. After weights were loaded both are
  /// needed: torch::load(net[0], file) on the chief, then sync_parameters() and sync_buffers() on
  /// all workers.
  void sync_parameters(Here here = Here::now()) const {
    detail::sync_parameters(*strategy_, modules(), here);
  }
  /// In cross-replica context: every copy's buffers become those of replica 0, or their mean over
  /// all replicas (integers: replica 0's).
  void sync_buffers(BufferSync how = BufferSync::first_replica, Here here = Here::now()) const {
    detail::sync_buffers(*strategy_, modules(), how, here);
  }
  /// A digest of all parameters of a copy; equal bits, equal digests.
  [[nodiscard]] std::uint64_t digest(int replica = 0) const {
    return detail::digest_of(detail::module_of((*this)[replica]));
  }

  Model(std::vector<std::unique_ptr<Net>> copies, std::vector<Variable> variables,
        std::shared_ptr<detail::StrategyCore> strategy)
      : copies_(std::make_shared<std::vector<std::unique_ptr<Net>>>(std::move(copies))),
        variables_(std::make_shared<std::vector<Variable>>(std::move(variables))),
        strategy_(std::move(strategy)) {}

 private:
  [[nodiscard]] std::vector<torch::nn::Module*> modules() const {
    std::vector<torch::nn::Module*> all;
    for (int i = 0; i < size(); ++i) all.push_back(&detail::module_of((*this)[i]));
    return all;
  }

  std::shared_ptr<std::vector<std::unique_ptr<Net>>> copies_;
  std::shared_ptr<std::vector<Variable>> variables_;
  std::shared_ptr<detail::StrategyCore> strategy_;
};

template <class Net, class... Args>
Model<Net> Strategy::create(const Args&... args) {
  detail::require_cross(*this, "create");
  std::vector<std::unique_ptr<Net>> copies;
  std::vector<torch::nn::Module*> modules;
  copies.push_back(std::make_unique<Net>(args...));
  modules.push_back(&detail::module_of(*copies.front()));
  detail::take_from_chief(*this, *modules.front());
  const detail::DefaultGeneratorState as_after_one;
  for (int i = 1; i < static_cast<int>(detail::replica_devices(*this)->size()); ++i) {
    copies.push_back(std::make_unique<Net>(args...));
    modules.push_back(&detail::module_of(*copies.back()));
    detail::take_over(*modules.back(), *modules.front(), i);
  }
  detail::require_equal_copies(*this, modules);
  std::vector<Variable> variables = detail::parameters_as_variables(*this, modules);
  return Model<Net>(std::move(copies), std::move(variables), shared_core());
}

}  // namespace lockstep
