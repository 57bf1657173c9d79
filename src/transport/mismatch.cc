#include "transport/mismatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "plan/plan.h"

namespace lockstep::transport {
namespace {

using Rows = std::vector<std::optional<wire::Descriptor>>;

/// Ranks by what they asked for.
std::map<std::uint64_t, std::vector<int>> parties(const Rows& rows) {
  std::map<std::uint64_t, std::vector<int>> by_request;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank]) by_request[wire::fingerprint(*rows[rank])].push_back(static_cast<int>(rank));
  }
  return by_request;
}

std::vector<int> blamed(const Rows& rows) {
  const auto by_request = parties(rows);
  std::size_t largest = 0;
  int with_largest = 0;
  for (const auto& [_, ranks] : by_request) {
    if (ranks.size() > largest) {
      largest = ranks.size();
      with_largest = 1;
    } else if (ranks.size() == largest) {
      ++with_largest;
    }
  }
  std::vector<int> culprits;
  for (const auto& [_, ranks] : by_request) {
    if (ranks.size() == largest && with_largest == 1) continue;
    culprits.insert(culprits.end(), ranks.begin(), ranks.end());
  }
  std::sort(culprits.begin(), culprits.end());
  return culprits;
}

/// Broadcasts that agree on everything but the root have a name of their own in TensorFlow's
/// runtime.
std::string explain_sources(const Rows& rows) {
  int broadcasts = 0;
  int sources = 0;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    if (!rows[rank] || rows[rank]->kind != static_cast<std::uint8_t>(plan::Kind::broadcast)) {
      return {};
    }
    ++broadcasts;
    sources += rows[rank]->root == static_cast<int>(rank) ? 1 : 0;
  }
  if (sources == 0) {
    return fmt::format("; found no source for the broadcast: group_size={} BcastRecvs={}",
                       rows.size(), broadcasts);
  }
  if (sources > 1) return fmt::format("; the broadcast has {} sources, it takes one", sources);
  return {};
}

/// Requests that read the same but are not: what differs is how they would be carried out.
bool differ_in_plan_alone(const Rows& rows) {
  std::map<std::string, std::uint64_t> plans;
  for (const auto& row : rows) {
    if (!row) continue;
    const auto [known, is_new] = plans.emplace(wire::describe_fully(*row), row->plan_hash);
    if (!is_new && known->second != row->plan_hash) return true;
  }
  return false;
}

/// Requests that read the same in the user's words, but are not.
bool differ_unseen(const Rows& rows) {
  std::map<std::string, std::uint64_t> requests;
  for (const auto& row : rows) {
    if (!row) continue;
    const std::uint64_t request = wire::fingerprint(*row);
    const auto [known, is_new] = requests.emplace(wire::describe(*row), request);
    if (!is_new && known->second != request) return true;
  }
  return false;
}

}  // namespace

Status mismatch(std::uint64_t sequence, const Rows& rows, std::span<const int> members) {
  const auto called = [&](std::size_t row) {
    return members.empty() ? static_cast<int>(row) : members[row];
  };
  std::string text =
      fmt::format("the ranks disagree about operation {}{}:", sequence, explain_sources(rows));
  const auto described = differ_unseen(rows) ? wire::describe_fully : wire::describe;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    text += fmt::format("\n  rank {}: {}", called(rank),
                        rows[rank] ? described(*rows[rank]) : "has not arrived");
  }
  text +=
      differ_in_plan_alone(rows)
          ? "\nthe same call would be carried out in different ways: LOCKSTEP_ALGORITHMS, "
            "LOCKSTEP_COSTS, SessionOptions::algorithms and costs, CallOptions::order, counts and "
            "whether buffers are of Session::allocate must be equal on all ranks"
          : "\nevery rank must make the same calls in the same order";
  std::vector<int> culprits = blamed(rows);
  for (int& rank : culprits) rank = called(static_cast<std::size_t>(rank));
  const bool no_source = text.find("found no source") != std::string::npos;
  return {ErrorKind::mismatch, no_source ? Code::internal : Code::invalid_argument, std::move(text),
          std::move(culprits)};
}

}  // namespace lockstep::transport
