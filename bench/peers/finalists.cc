#include "bench/peers/finalists.h"

#include <algorithm>
#include <cstddef>

namespace lockstep::bench::peers {
namespace {

/// Within this of the best is close.
constexpr double kNearlyBest = 1.6;
constexpr std::size_t kMost = 3;

}  // namespace

std::vector<bool> finalists_of(const std::vector<std::optional<double>>& seconds) {
  std::vector<bool> chosen(seconds.size());
  std::vector<std::size_t> timed;
  for (std::size_t member = 0; member < seconds.size(); ++member) {
    if (seconds[member]) {
      timed.push_back(member);
    } else {
      chosen[member] = true;
    }
  }
  std::sort(timed.begin(), timed.end(),
            [&](std::size_t a, std::size_t b) { return *seconds[a] < *seconds[b]; });
  for (std::size_t place = 0; place < std::min(timed.size(), kMost); ++place) {
    chosen[timed[place]] = *seconds[timed[place]] <= *seconds[timed.front()] * kNearlyBest;
  }
  return chosen;
}

}  // namespace lockstep::bench::peers
