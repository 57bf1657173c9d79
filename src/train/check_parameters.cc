// All replicas of all workers compare their parameters, by digests.
#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <map>

#include "strategy/meet_before_throwing.h"
#include "train/optimizer_core.h"

namespace lockstep::detail {

namespace {

/// Where most copies agree: the first of those. Of as many, those of the lowest copy.
std::size_t first_of_most(const std::vector<std::int64_t>& digests) {
  std::map<std::int64_t, int> votes;
  for (const std::int64_t digest : digests) ++votes[digest];
  const auto fewer = [&](std::int64_t a, std::int64_t b) { return votes[a] < votes[b]; };
  return static_cast<std::size_t>(std::max_element(digests.begin(), digests.end(), fewer) -
                                  digests.begin());
}

}  // namespace

void OptimizerCore::check_parameters() {
  const auto count = static_cast<std::size_t>(parameters_.count());
  std::vector<std::int64_t> all(count * static_cast<std::size_t>(copies()));  // [copy][parameter]
  on_copies([&](int c) {
    for (std::size_t p = 0; p < count; ++p) {
      const Tensor own = parameters_.on(c, static_cast<int>(p)).detach().contiguous();
      all[static_cast<std::size_t>(c) * count + p] =
          static_cast<std::int64_t>(XXH3_64bits(own.data_ptr(), own.nbytes()));
    }
  });
  if (Workers* workers = strategy_->workers()) all = workers->gather(all, "parameters");
  for (std::size_t p = 0; p < count; ++p) {
    std::vector<std::int64_t> digests;
    for (std::size_t i = p; i < all.size(); i += count) digests.push_back(all[i]);
    const std::size_t right = first_of_most(digests);
    std::vector<int> wrong;
    std::vector<int> culprits;
    for (std::size_t c = 0; c < digests.size(); ++c) {
      if (digests[c] == digests[right]) continue;
      wrong.push_back(static_cast<int>(c));
      const int worker = wrong.back() / copies();
      if (culprits.empty() || culprits.back() != worker) culprits.push_back(worker);
    }
    if (wrong.empty()) continue;
    meet_before_throwing(strategy_->workers());
    throw Mismatch(
        fmt::format("after {} steps parameter {} of replica {} (worker {}) differs from replica "
                    "{}'s: something other than the optimizer has written one of them, or the "
                    "replicas' arithmetic differs",
                    iterations(), parameters_.variables[p].name(), wrong.front(), culprits.front(),
                    right),
        Code::data_loss, culprits);
  }
}

}  // namespace lockstep::detail
