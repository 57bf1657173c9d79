#include "train/step_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/error.h"
#include "train/known_optimizers.h"

namespace lockstep::train {

namespace {

void add(std::string& text, const std::string& more) {
  if (!text.empty()) text += ", ";
  text += more;
}

/// One number if all groups have the same.
std::string rates_of(const torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  const auto differs = [&](double rate) { return rate != rates.front(); };
  if (std::none_of(rates.begin(), rates.end(), differs)) return fmt::to_string(rates.front());
  return fmt::format("{}", fmt::join(rates, " "));
}

[[noreturn]] void throw_other_options(int replica, const torch::optim::Optimizer& own,
                                      int first_replica, const torch::optim::Optimizer& first,
                                      std::size_t group) {
  const std::vector<OptionValue> values = values_of(own.param_groups()[group].options());
  const std::vector<OptionValue> firsts = values_of(first.param_groups()[group].options());
  std::size_t i = 0;
  while (i + 1 < values.size() && values[i].value == firsts[i].value) ++i;
  const bool is_rate = i == 0;
  throw InvalidUsage(
      fmt::format(
          "apply: replica {} has {} {}, and replica {} has {}: it was set on local() of one "
          "replica only. {}et it on every replica",
          replica,
          is_rate ? "the learning rate"
                  : fmt::format("another {} (group {}):", values[i].name, group),
          is_rate ? rates_of(own) : values[i].value, first_replica,
          is_rate ? rates_of(first) : firsts[i].value,
          is_rate ? "Use set_learning_rate() or scheduler() of the optimizer, or s" : "S"),
      Code::failed_precondition);
}

}  // namespace

std::string describe_scale(const torch::optim::Optimizer& optimizer, const MadeOptions& made,
                           const ApplyOptions& options,
                           std::optional<std::int64_t> global_batch_size) {
  std::string text;
  if (options.clip_global_norm) {
    add(text, fmt::format("clip_global_norm {}", *options.clip_global_norm));
  }
  if (options.clip_grad_norm) add(text, fmt::format("clip_grad_norm {}", *options.clip_grad_norm));
  if (global_batch_size) add(text, fmt::format("batch {}", *global_batch_size));
  // The options of an optimizer of the user's own need not have a rate.
  if (is_torchs_own(optimizer)) add(text, fmt::format("lr {}", rates_of(optimizer)));
  if (const std::string changed = made.changed(optimizer); !changed.empty()) add(text, changed);
  return text;
}

void require_same_options(const std::vector<const torch::optim::Optimizer*>& copies,
                          int first_replica) {
  const torch::optim::Optimizer& first = *copies.front();
  const auto differs = [](const auto& a, const auto& b) {
    return !same_options(a.options(), b.options());
  };
  for (std::size_t c = 1; c < copies.size(); ++c) {
    const auto& own = copies[c]->param_groups();
    const auto& firsts = first.param_groups();
    for (std::size_t g = 0; g < std::min(own.size(), firsts.size()); ++g) {
      if (differs(own[g], firsts[g])) {
        throw_other_options(first_replica + static_cast<int>(c), *copies[c], first_replica, first,
                            g);
      }
    }
  }
}

}  // namespace lockstep::train
