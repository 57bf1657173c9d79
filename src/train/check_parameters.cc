// All replicas of all workers compare their parameters, by digests.
#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <map>

#include "strategy/meet_before_throwing.h"
#include "strategy/variable_state.h"
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

void OptimizerCore::check_parameters(Compare why) {
  if (strategy_->workers() == nullptr && copies() == 1) return;
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
    if (parameters_.variables[p].state().on_read()) continue;  // each copy has its own value
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
    const std::string& name = parameters_.variables[p].name();
    const std::string where =
        fmt::format("parameter {} of replica {} (worker {}) differs from replica {}'s", name,
                    wrong.front(), culprits.front(), right);
    const char* const load =
        "Load weights into every copy on every worker, or into net[0] on the chief, and call "
        "sync_parameters() and sync_buffers() of the model on all workers";
    if (why == Compare::made) {
      throw Mismatch(
          fmt::format("optimizer: {}: weights were loaded into one copy only, or on one worker "
                      "only. {}",
                      where, load),
          Code::data_loss, culprits);
    }
    if (why == Compare::changed) {
      throw Mismatch(
          fmt::format(
              "apply: {}: since the last step ({} taken) something other than the optimizer "
              "has written one of them, such as torch::load. {}; then reset() of the optimizer",
              where, iterations(), load),
          Code::data_loss, culprits);
    }
    throw Mismatch(
        fmt::format("after {} steps {}: something other than the optimizer has written one of "
                    "them, or the replicas' arithmetic differs",
                    iterations(), where),
        Code::data_loss, culprits);
  }
}

}  // namespace lockstep::detail
