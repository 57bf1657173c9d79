// All replicas of all workers compare their parameters, by digests.
#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "strategy/meet_before_throwing.h"
#include "strategy/variable_state.h"
#include "train/known_optimizers.h"
#include "train/optimizer_core.h"
#include "train/optimizer_state.h"

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

/// The first parameter whose copies differ.
struct Difference {
  std::size_t parameter = 0;
  int replica = 0;            // the first that is unlike most others
  int other = 0;              // the first of those
  std::vector<int> culprits;  // workers
  std::string groups;
};

/// Those that are unlike most others. If there is no majority, as of two, it may be any of them.
Difference difference_of(std::size_t parameter, const std::vector<std::int64_t>& digests,
                         const std::vector<DigestGroup>& groups, int copies) {
  const auto smaller = [](const DigestGroup& a, const DigestGroup& b) {
    return a.replicas.size() < b.replicas.size();
  };
  const auto most = std::max_element(groups.begin(), groups.end(), smaller);
  const bool tied = std::any_of(most + 1, groups.end(), [&](const DigestGroup& group) {
    return group.replicas.size() == most->replicas.size();
  });
  const DigestGroup& wrong = most == groups.begin() ? groups[1] : groups[0];
  Difference found{.parameter = parameter,
                   .replica = wrong.replicas.front(),
                   .other = most->replicas.front(),
                   .culprits = {},
                   .groups = text_of(groups)};
  for (std::size_t c = 0; c < digests.size(); ++c) {
    if (!tied && digests[c] == most->digest) continue;
    const int worker = static_cast<int>(c) / copies;
    if (found.culprits.empty() || found.culprits.back() != worker) found.culprits.push_back(worker);
  }
  return found;
}

/// `all` is [copy][parameter], of all workers.
std::optional<Difference> first_difference(const std::vector<std::int64_t>& all,
                                           const std::vector<Variable>& variables, int copies) {
  for (std::size_t p = 0; p < variables.size(); ++p) {
    if (variables[p].state().on_read()) continue;  // each copy has its own value
    std::vector<std::int64_t> digests;
    for (std::size_t i = p; i < all.size(); i += variables.size()) digests.push_back(all[i]);
    const std::vector<DigestGroup> groups = groups_of(digests);
    if (groups.size() > 1) return difference_of(p, digests, groups, copies);
  }
  return {};
}

std::int64_t digest_of(const Tensor& tensor, std::int64_t seed = 0) {
  const Tensor own = (tensor.is_sparse() ? tensor.to_dense() : tensor).detach().contiguous();
  return static_cast<std::int64_t>(
      XXH3_64bits_withSeed(own.data_ptr(), own.nbytes(), static_cast<XXH64_hash_t>(seed)));
}

std::int64_t digest_of(const train::ParameterState& state) {
  std::int64_t digest = state.steps;
  for (const auto& [name, tensor] : state.tensors) {
    digest = static_cast<std::int64_t>(
        XXH3_64bits_withSeed(name.data(), name.size(), static_cast<XXH64_hash_t>(digest)));
    digest = digest_of(tensor, digest);
  }
  return digest;
}

}  // namespace

void OptimizerCore::check_parameters(Compare why) {
  if (strategy_->workers() == nullptr && copies() == 1) return;
  compare_parameters(why);
  if (why == Compare::changed && train::has_torchs_state(optimizer(0))) compare_states();
  equal_after_ = iterations();
}

std::vector<std::int64_t> OptimizerCore::gathered_digests(
    const std::function<std::int64_t(int, int)>& digest, const char* what) {
  const auto count = static_cast<std::size_t>(parameters_.count());
  std::vector<std::int64_t> all(count * static_cast<std::size_t>(copies()));  // [copy][parameter]
  on_copies([&](int c) {
    for (std::size_t p = 0; p < count; ++p) {
      all[static_cast<std::size_t>(c) * count + p] = digest(c, static_cast<int>(p));
    }
  });
  Workers* workers = strategy_->workers();
  return workers != nullptr ? workers->gather(all, what) : all;
}

void OptimizerCore::compare_parameters(Compare why) {
  const auto found = first_difference(
      gathered_digests([&](int c, int p) { return digest_of(parameters_.on(c, p)); }, "parameters"),
      parameters_.variables, copies());
  if (!found) return;
  meet_before_throwing(strategy_->workers());
  const std::string where =
      fmt::format("parameter {} of replica {} (worker {}) differs from replica {}'s ({}){}",
                  parameters_.variables[found->parameter].name(), found->replica,
                  found->replica / copies(), found->other, found->groups, Verb::place_text());
  const char* const load =
      "Load weights into every copy on every worker, or into net[0] on the chief, and call "
      "sync_parameters() and sync_buffers() of the model on all workers";
  if (why == Compare::made) {
    throw Mismatch(
        fmt::format("optimizer: {}: weights were loaded into one copy only, or on one worker "
                    "only. {}",
                    where, load),
        Code::data_loss, found->culprits);
  }
  if (why == Compare::changed) {
    throw Mismatch(
        fmt::format(
            "apply: {}: since the last step ({} taken) something other than the optimizer "
            "has written one of them, such as torch::load, or a step has failed on some of them "
            "only. {}; then reset() of the optimizer",
            where, iterations(), load),
        Code::data_loss, found->culprits);
  }
  throw Mismatch(
      fmt::format("after {} steps {}. They parted within steps {} to {}: something other than "
                  "the optimizer has written one of them, or the replicas' arithmetic differs",
                  iterations(), where, std::min(equal_after_ + 1, iterations()), iterations()),
      Code::data_loss, found->culprits);
}

// The parameters are equal until the next step.
void OptimizerCore::compare_states() {
  const auto digest = [&](int c, int p) {
    return digest_of(train::state_of(optimizer(c), parameters_.on(c, p)));
  };
  const auto found = first_difference(gathered_digests(digest, "states of the optimizers"),
                                      parameters_.variables, copies());
  if (!found) return;
  meet_before_throwing(strategy_->workers());
  throw Mismatch(
      fmt::format(
          "apply: the optimizer's state for parameter {} of replica {} (worker {}) differs "
          "from replica {}'s ({}){}: since the last step ({} taken) it was loaded into one "
          "copy only, or on one worker only. Load it into local() of every replica on every "
          "worker; then reset() of the optimizer",
          parameters_.variables[found->parameter].name(), found->replica, found->replica / copies(),
          found->other, found->groups, Verb::place_text(), iterations()),
      Code::data_loss, found->culprits);
}

}  // namespace lockstep::detail
