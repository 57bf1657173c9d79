#include "doctor/clocks.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <span>
#include <vector>

namespace lockstep::tool {
namespace {

constexpr int kRounds = 8;
constexpr double kFar = 500;  // milliseconds

std::int64_t wall_clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

struct Offset {
  std::int64_t nanoseconds = 0;  // of the other clock against this one
  std::int64_t round = INT64_MAX;
};

/// The round that took the least time says most.
Offset ask(coll::Session& group, int rank) {
  Offset best;
  std::vector<std::int64_t> message(1);
  for (int i = 0; i < kRounds; ++i) {
    const std::int64_t before = wall_clock();
    group.send(std::span(message), coll::To{rank});
    group.receive(std::span(message), coll::From{rank});
    const std::int64_t round = wall_clock() - before;
    if (round < best.round) best = {message[0] - (before + round / 2), round};
  }
  return best;
}

void answer(coll::Session& group) {
  std::vector<std::int64_t> message(1);
  for (int i = 0; i < kRounds; ++i) {
    group.receive(std::span(message), coll::From{0});
    message[0] = wall_clock();
    group.send(std::span(message), coll::To{0});
  }
}

Finding judge(int rank, const Offset& offset) {
  const double milliseconds = static_cast<double>(offset.nanoseconds) / 1e6;
  const double uncertainty = static_cast<double>(offset.round) / 2e6;
  std::string what = fmt::format("rank {}: {:+.3f} ms from rank 0, to within {:.3f} ms", rank,
                                 milliseconds, uncertainty);
  if (std::abs(milliseconds) - uncertainty < kFar) {
    return {Verdict::ok, "clocks", std::move(what), ""};
  }
  return {Verdict::warning, "clocks", std::move(what),
          "logs and files of the hosts cannot be put in order: set the clocks by NTP"};
}

}  // namespace

Findings check_clocks(coll::Session& group) {
  Findings findings;
  std::set<int> known = {group.host(0)};
  for (int rank = 1; rank < group.size(); ++rank) {
    if (!known.insert(group.host(rank)).second) continue;
    if (group.rank() == 0) findings.push_back(judge(rank, ask(group, rank)));
    if (group.rank() == rank) answer(group);
  }
  if (group.rank() == 0 && findings.empty()) {
    findings.push_back({Verdict::ok, "clocks", "all ranks are on one host and have one clock", ""});
  }
  return findings;
}

}  // namespace lockstep::tool
