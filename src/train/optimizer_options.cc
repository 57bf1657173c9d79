#include "train/optimizer_options.h"

#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>

namespace lockstep::train {

namespace {

using torch::optim::OptimizerOptions;

class Values {
 public:
  template <class T>
  void add(const char* name, const T& value) {
    all_.push_back({name, fmt::to_string(value)});
  }
  void add(const char* name, const std::tuple<double, double>& values) {
    all_.push_back({name, fmt::format("({}, {})", std::get<0>(values), std::get<1>(values))});
  }
  template <class T>
  void add(const char* name, const c10::optional<T>& value) {
    if (value) {
      add(name, *value);
    } else {
      all_.push_back({name, "none"});
    }
  }
  std::vector<OptionValue> take() && { return std::move(all_); }

 private:
  std::vector<OptionValue> all_;
};

template <class Options, class Read>
bool read_as(const OptimizerOptions& options, const Read& read) {
  const auto* own = dynamic_cast<const Options*>(&options);
  if (own != nullptr) read(*own);
  return own != nullptr;
}

/// Empty: they are not of this type.
template <class Options>
std::optional<bool> same_as(const OptimizerOptions& a, const OptimizerOptions& b) {
  const auto* own = dynamic_cast<const Options*>(&a);
  const auto* other = dynamic_cast<const Options*>(&b);
  if (own == nullptr || other == nullptr) return {};
  return *own == *other;
}

template <class... Types>
bool same_as_one_of(const OptimizerOptions& a, const OptimizerOptions& b) {
  std::optional<bool> same;
  static_cast<void>(((same = same_as<Types>(a, b)).has_value() || ...));
  return same.value_or(true);
}

}  // namespace

std::vector<OptionValue> values_of(const OptimizerOptions& options) {
  using namespace torch::optim;
  Values values;
  const auto adam = [&](const auto& own) {
    values.add("betas", own.betas());
    values.add("eps", own.eps());
    values.add("weight_decay", own.weight_decay());
    values.add("amsgrad", own.amsgrad());
  };
  values.add("lr", options.get_lr());
  read_as<SGDOptions>(options,
                      [&](const auto& own) {
                        values.add("momentum", own.momentum());
                        values.add("dampening", own.dampening());
                        values.add("weight_decay", own.weight_decay());
                        values.add("nesterov", own.nesterov());
                      }) ||
      read_as<AdamOptions>(options, adam) || read_as<AdamWOptions>(options, adam) ||
      read_as<AdagradOptions>(options,
                              [&](const auto& own) {
                                values.add("lr_decay", own.lr_decay());
                                values.add("weight_decay", own.weight_decay());
                                values.add("initial_accumulator_value",
                                           own.initial_accumulator_value());
                                values.add("eps", own.eps());
                              }) ||
      read_as<RMSpropOptions>(options,
                              [&](const auto& own) {
                                values.add("alpha", own.alpha());
                                values.add("eps", own.eps());
                                values.add("weight_decay", own.weight_decay());
                                values.add("momentum", own.momentum());
                                values.add("centered", own.centered());
                              }) ||
      read_as<LBFGSOptions>(options, [&](const auto& own) {
        values.add("max_iter", own.max_iter());
        values.add("max_eval", own.max_eval());
        values.add("tolerance_grad", own.tolerance_grad());
        values.add("tolerance_change", own.tolerance_change());
        values.add("history_size", own.history_size());
        values.add("line_search_fn", own.line_search_fn());
      });
  return std::move(values).take();
}

bool same_options(const OptimizerOptions& a, const OptimizerOptions& b) {
  using namespace torch::optim;
  return same_as_one_of<SGDOptions, AdamOptions, AdamWOptions, AdagradOptions, RMSpropOptions,
                        LBFGSOptions>(a, b);
}

MadeOptions::MadeOptions(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) groups_.push_back(group.options().clone());
}

std::string MadeOptions::changed(const torch::optim::Optimizer& optimizer) const {
  std::string text;
  const auto& groups = optimizer.param_groups();
  for (std::size_t g = 0; g < std::min(groups.size(), groups_.size()); ++g) {
    if (same_options(groups[g].options(), *groups_[g])) continue;
    const std::vector<OptionValue> made = values_of(*groups_[g]);
    const std::vector<OptionValue> now = values_of(groups[g].options());
    for (std::size_t i = 1; i < now.size(); ++i) {
      if (now[i].value == made[i].value) continue;
      if (!text.empty()) text += ", ";
      if (groups.size() > 1) text += fmt::format("group {} ", g);
      text += now[i].name + " " + now[i].value;
    }
  }
  return text;
}

}  // namespace lockstep::train
