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

}  // namespace

std::string describe_scale(const torch::optim::Optimizer& optimizer, const ApplyOptions& options,
                           std::optional<std::int64_t> global_batch_size) {
  std::string text;
  if (options.clip_global_norm) {
    add(text, fmt::format("clip_global_norm {}", *options.clip_global_norm));
  }
  if (options.clip_grad_norm) add(text, fmt::format("clip_grad_norm {}", *options.clip_grad_norm));
  if (global_batch_size) add(text, fmt::format("batch {}", *global_batch_size));
  // The options of an optimizer of the user's own need not have a rate.
  if (is_torchs_own(optimizer)) add(text, fmt::format("lr {}", rates_of(optimizer)));
  return text;
}

void require_same_rates(const std::vector<const torch::optim::Optimizer*>& copies,
                        int first_replica) {
  const torch::optim::Optimizer& first = *copies.front();
  if (!is_torchs_own(first)) return;
  const auto same_rate = [](const auto& a, const auto& b) {
    return a.options().get_lr() == b.options().get_lr();
  };
  for (std::size_t c = 1; c < copies.size(); ++c) {
    const auto& own = copies[c]->param_groups();
    if (std::equal(own.begin(), own.end(), first.param_groups().begin(), first.param_groups().end(),
                   same_rate)) {
      continue;
    }
    throw InvalidUsage(
        fmt::format("apply: replica {} has the learning rate {}, and replica {} has {}: it was set "
                    "on local() of one replica only. Use set_learning_rate() or scheduler() of the "
                    "optimizer, or set it on every replica",
                    first_replica + static_cast<int>(c), rates_of(*copies[c]), first_replica,
                    rates_of(first)),
        Code::failed_precondition);
  }
}

}  // namespace lockstep::train
