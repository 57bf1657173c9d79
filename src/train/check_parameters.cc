// All replicas of all workers compare their parameters, by digests.
#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <string>
#include <vector>

#include "strategy/meet_before_throwing.h"
#include "strategy/variable_state.h"
#include "train/optimizer_core.h"

namespace lockstep::detail {

namespace {

/// The replicas that have the same value of a parameter.
struct DigestGroup {
  std::int64_t digest = 0;
  std::vector<int> replicas;
};

/// In the order of their first replicas.
std::vector<DigestGroup> groups_of(const std::vector<std::int64_t>& digests) {
  std::vector<DigestGroup> groups;
  for (std::size_t r = 0; r < digests.size(); ++r) {
    const auto same = [&](const DigestGroup& group) { return group.digest == digests[r]; };
    auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found == groups.end()) found = groups.insert(found, {.digest = digests[r], .replicas = {}});
    found->replicas.push_back(static_cast<int>(r));
  }
  return groups;
}

/// Groups beyond this are counted: with many replicas each may have a value of its own.
constexpr std::size_t kMostGroups = 4;

std::string text_of(const std::vector<DigestGroup>& groups) {
  std::string text;
  for (std::size_t i = 0; i < std::min(groups.size(), kMostGroups); ++i) {
    const std::vector<int>& replicas = groups[i].replicas;
    const bool one = replicas.size() == 1;
    text += fmt::format("{}{} {} {} digest {:016x}", i == 0 ? "" : ", ",
                        one ? "replica" : "replicas", fmt::join(replicas, ", "),
                        one ? "has" : "have", static_cast<std::uint64_t>(groups[i].digest));
  }
  if (groups.size() <= kMostGroups) return text;
  return text + fmt::format(" and {} more digests", groups.size() - kMostGroups);
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
    const std::vector<DigestGroup> groups = groups_of(digests);
    if (groups.size() == 1) continue;
    const auto smaller = [](const DigestGroup& a, const DigestGroup& b) {
      return a.replicas.size() < b.replicas.size();
    };
    // Those that are unlike most others. If there is no majority, as of two, it may be any of them.
    const auto most = std::max_element(groups.begin(), groups.end(), smaller);
    const bool tied = std::any_of(most + 1, groups.end(), [&](const DigestGroup& group) {
      return group.replicas.size() == most->replicas.size();
    });
    std::vector<int> culprits;
    for (std::size_t c = 0; c < digests.size(); ++c) {
      if (!tied && digests[c] == most->digest) continue;
      const int worker = static_cast<int>(c) / copies();
      if (culprits.empty() || culprits.back() != worker) culprits.push_back(worker);
    }
    const DigestGroup& wrong = most == groups.begin() ? groups[1] : groups[0];
    meet_before_throwing(strategy_->workers());
    const std::string& name = parameters_.variables[p].name();
    const std::string where =
        fmt::format("parameter {} of replica {} (worker {}) differs from replica {}'s ({})", name,
                    wrong.replicas.front(), wrong.replicas.front() / copies(),
                    most->replicas.front(), text_of(groups));
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
        fmt::format("after {} steps {}. They parted within steps {} to {}: something other than "
                    "the optimizer has written one of them, or the replicas' arithmetic differs",
                    iterations(), where, std::min(equal_after_ + 1, iterations()), iterations()),
        Code::data_loss, culprits);
  }
  equal_after_ = iterations();
}

}  // namespace lockstep::detail
