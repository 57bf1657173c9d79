// Models: a torch::nn::Module with one copy for each replica, equal everywhere.
//
//   auto net = strategy.create<Net>(784, 10);     // a module class, or a TORCH_MODULE holder
//   strategy.run([](Net& own, const Tensor& x) { return own->forward(x); }, net, batch);
//   for (const Variable& w : net.variables()) ...   // the parameters, as mirrored variables
//
// The first copy is constructed as it would be alone; the others take over its parameters and
// buffers. Constructing leaves libtorch's default generator as one construction would.
#pragma once

// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <ATen/core/Generator.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/strategy.h"

namespace lockstep {

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
/// names or shapes.
void take_over(torch::nn::Module& copy, const torch::nn::Module& first, int replica);
/// The parameters of all copies as variables; one that appears twice in a module is one variable.
std::vector<Variable> parameters_as_variables(Strategy& strategy,
                                              const std::vector<torch::nn::Module*>& copies);

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

  Model(std::vector<std::unique_ptr<Net>> copies, std::vector<Variable> variables)
      : copies_(std::make_shared<std::vector<std::unique_ptr<Net>>>(std::move(copies))),
        variables_(std::make_shared<std::vector<Variable>>(std::move(variables))) {}

 private:
  std::shared_ptr<std::vector<std::unique_ptr<Net>>> copies_;
  std::shared_ptr<std::vector<Variable>> variables_;
};

template <class Net, class... Args>
Model<Net> Strategy::create(const Args&... args) {
  detail::require_cross(*this, "create");
  std::vector<std::unique_ptr<Net>> copies;
  std::vector<torch::nn::Module*> modules;
  copies.push_back(std::make_unique<Net>(args...));
  modules.push_back(&detail::module_of(*copies.front()));
  const detail::DefaultGeneratorState as_after_one;
  for (int i = 1; i < num_replicas_in_sync(); ++i) {
    copies.push_back(std::make_unique<Net>(args...));
    modules.push_back(&detail::module_of(*copies.back()));
    detail::take_over(*modules.back(), *modules.front(), i);
  }
  std::vector<Variable> variables = detail::parameters_as_variables(*this, modules);
  return Model<Net>(std::move(copies), std::move(variables));
}

}  // namespace lockstep
