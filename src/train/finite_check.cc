#include "train/finite_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "train/non_finite.h"

namespace lockstep::train {

FiniteCheck::FiniteCheck(detail::StrategyCore& strategy, const Parameters& parameters,
                         NonFinite policy)
    : strategy_(strategy), parameters_(parameters), policy_(policy) {
  forget();
}

void FiniteCheck::record(int replica, int parameter, const Tensor& gradient) {
  if (policy_ != NonFinite::error) return;
  not_finite_[static_cast<std::size_t>(replica)][static_cast<std::size_t>(parameter)] =
      is_finite(gradient) ? 0 : 1;
}

void FiniteCheck::record_rest(int replica, const Arrivals& arrivals) {
  if (policy_ != NonFinite::error) return;
  for (int p = 0; p < parameters_.count(); ++p) {
    if (arrivals.has(p)) continue;
    const Tensor& gradient = parameters_.on(replica, p).grad();
    if (gradient.defined()) {
      record(replica, p, gradient);
    } else {
      not_finite_[static_cast<std::size_t>(replica)][static_cast<std::size_t>(p)] = 0;
    }
  }
}

void FiniteCheck::forget() {
  not_finite_.assign(static_cast<std::size_t>(strategy_.replicas()),
                     std::vector<char>(parameters_.variables.size(), 0));
}

int FiniteCheck::first_non_finite() const {
  const int lanes = strategy_.replicas();
  std::vector<int> found(static_cast<std::size_t>(lanes), parameters_.count());
  strategy_.on_lanes([&](int lane) {
    for (int p = lane; p < parameters_.count(); p += lanes) {
      const Tensor& gradient = parameters_.on(0, p).grad();
      if (!gradient.defined() || is_finite(gradient)) continue;
      found[static_cast<std::size_t>(lane)] = p;
      return;
    }
  });
  const int first = *std::min_element(found.begin(), found.end());
  return first < parameters_.count() ? first : -1;
}

std::string FiniteCheck::origin_of(int parameter) const {
  std::vector<std::int64_t> flags;
  for (const auto& own : not_finite_) flags.push_back(own[static_cast<std::size_t>(parameter)]);
  if (detail::Workers* workers = strategy_.workers()) flags = workers->gather(flags, "not finite");
  std::vector<std::size_t> replicas;
  for (std::size_t r = 0; r < flags.size(); ++r) {
    if (flags[r] != 0) replicas.push_back(r);
  }
  if (replicas.empty()) return "each replica's own was finite when it came";
  return fmt::format("replica {} computed it", fmt::join(replicas, ", "));
}

}  // namespace lockstep::train
