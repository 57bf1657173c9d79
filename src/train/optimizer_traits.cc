// What the workers' optimizers must be alike in: another list of parameters would add up what does
// not belong together, and another momentum would let the copies drift apart without a word.
// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "tensor/torch_text.h"
#include "train/optimizer_core.h"

namespace lockstep::detail {

namespace {

using torch::optim::OptimizerOptions;

/// Names and values of the options of a parameter group.
class Fields {
 public:
  Fields(std::vector<Trait>& traits, std::size_t group) : traits_(traits), group_(group) {}

  template <class T>
  void add(const char* name, const T& value) {
    traits_.push_back({fmt::format("group {} {}", group_, name), fmt::to_string(value)});
  }
  void add(const char* name, const std::tuple<double, double>& values) {
    add(name, fmt::format("({}, {})", std::get<0>(values), std::get<1>(values)));
  }
  template <class T>
  void add(const char* name, const c10::optional<T>& value) {
    if (value) {
      add(name, *value);
    } else {
      add(name, "none");
    }
  }

 private:
  std::vector<Trait>& traits_;
  std::size_t group_;
};

template <class Options, class Read>
bool read_as(const OptimizerOptions& options, const Read& read) {
  const auto* own = dynamic_cast<const Options*>(&options);
  if (own != nullptr) read(*own);
  return own != nullptr;
}

void add_options(Fields& fields, const OptimizerOptions& options) {
  using namespace torch::optim;
  const auto adam = [&](const auto& own) {
    fields.add("betas", own.betas());
    fields.add("eps", own.eps());
    fields.add("weight_decay", own.weight_decay());
    fields.add("amsgrad", own.amsgrad());
  };
  fields.add("lr", options.get_lr());
  // An optimizer that is not torch's own has its rate compared.
  read_as<SGDOptions>(options,
                      [&](const auto& own) {
                        fields.add("momentum", own.momentum());
                        fields.add("dampening", own.dampening());
                        fields.add("weight_decay", own.weight_decay());
                        fields.add("nesterov", own.nesterov());
                      }) ||
      read_as<AdamOptions>(options, adam) || read_as<AdamWOptions>(options, adam) ||
      read_as<AdagradOptions>(options,
                              [&](const auto& own) {
                                fields.add("lr_decay", own.lr_decay());
                                fields.add("weight_decay", own.weight_decay());
                                fields.add("initial_accumulator_value",
                                           own.initial_accumulator_value());
                                fields.add("eps", own.eps());
                              }) ||
      read_as<RMSpropOptions>(options,
                              [&](const auto& own) {
                                fields.add("alpha", own.alpha());
                                fields.add("eps", own.eps());
                                fields.add("weight_decay", own.weight_decay());
                                fields.add("momentum", own.momentum());
                                fields.add("centered", own.centered());
                              }) ||
      read_as<LBFGSOptions>(options, [&](const auto& own) {
        fields.add("max_iter", own.max_iter());
        fields.add("max_eval", own.max_eval());
        fields.add("tolerance_grad", own.tolerance_grad());
        fields.add("tolerance_change", own.tolerance_change());
        fields.add("history_size", own.history_size());
        fields.add("line_search_fn", own.line_search_fn());
      });
}

}  // namespace

// Before anything is sent.
void OptimizerCore::compare_workers() const {
  Workers* workers = strategy_->workers();
  if (workers == nullptr) return;
  std::vector<Trait> traits = {
      {"type", type_},
      {"allow_unused", fmt::to_string(options_.allow_unused)},
      {"overlap", fmt::to_string(static_cast<int>(options_.overlap))},
      {"bucket_bytes", fmt::to_string(options_.bucket_bytes)},
      {"wire", fmt::to_string(static_cast<int>(options_.wire))},
      {"check_every", fmt::to_string(options_.check_every)},
      {"non_finite", fmt::to_string(static_cast<int>(options_.non_finite))},
      {"number of groups", fmt::to_string(groups_.size())}};
  const auto& own_groups = optimizer(0).param_groups();
  for (std::size_t g = 0; g < own_groups.size(); ++g) {
    Fields fields(traits, g);
    add_options(fields, own_groups[g].options());
    fields.add("number of variables", own_groups[g].params().size());
  }
  for (const Variable& variable : parameters_.variables) {
    const Tensor own = variable[0];
    traits.push_back(
        {"variable",
         fmt::format("{} {} {}{}", variable.name(), tensor::shape_text(own),
                     c10::toString(own.scalar_type()), own.requires_grad() ? "" : ", frozen")});
  }
  workers->require_alike("optimizer", traits);
}

}  // namespace lockstep::detail
