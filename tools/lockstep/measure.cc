#include "measure.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "lockstep/coll/threads.h"
#include "rank_trial.h"

namespace lockstep::tool {
namespace {

using Clock = RankTrial::Clock;
using Span = RankTrial::Span;

/// One rank's figures. Times are nanoseconds: as processes hand them to each other.
struct Figures {
  std::vector<std::int64_t> starts;
  std::vector<std::int64_t> ends;
  std::uint64_t wrong = 0;
  std::string algorithm;
};

std::int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

/// The algorithm of the newest operation in a session's history ("... by direct at file:7").
std::string newest_algorithm(const std::string& history) {
  const std::size_t by = history.rfind(" by ");
  if (by == std::string::npos) return {};
  const std::size_t begin = by + 4;
  return history.substr(begin, history.find(' ', begin) - begin);
}

Figures run_trial(const Trial& trial, coll::Session& group) {
  RankTrial mine(trial, group);
  const auto iterations = static_cast<std::size_t>(trial.iterations);
  Figures figures;
  figures.starts.reserve(iterations);
  figures.ends.reserve(iterations);
  std::uint64_t phase = 0;
  for (int i = 0; i < trial.warmups; ++i) mine.iterate(++phase);
  for (std::size_t i = 0; i < iterations; ++i) {
    const Span span = mine.iterate(++phase);
    figures.starts.push_back(nanoseconds(span.start));
    figures.ends.push_back(nanoseconds(span.end));
  }
  figures.wrong = mine.wrong();
  // Messages between two ranks are not in the history of the group.
  if (trial.kind != plan::Kind::send_receive) figures.algorithm = newest_algorithm(group.history());
  // Nobody leaves while another still measures.
  group.barrier();
  return figures;
}

enum class Clocks : std::uint8_t { one, several };

/// Rank 0's algorithm stands for all.
Timing combine(const std::vector<Figures>& ranks, Clocks clocks) {
  Timing timing;
  timing.algorithm = ranks.front().algorithm;
  for (const Figures& rank : ranks) timing.wrong += rank.wrong;
  for (std::size_t i = 0; i < ranks.front().starts.size(); ++i) {
    std::int64_t start = ranks.front().starts[i];
    std::int64_t end = ranks.front().ends[i];
    std::int64_t longest = 0;
    for (const Figures& rank : ranks) {
      start = std::min(start, rank.starts[i]);
      end = std::max(end, rank.ends[i]);
      longest = std::max(longest, rank.ends[i] - rank.starts[i]);
    }
    const std::int64_t taken = clocks == Clocks::one ? end - start : longest;
    timing.microseconds.push_back(static_cast<double>(taken) / 1e3);
  }
  return timing;
}

}  // namespace

double Timing::quantile(double share) const {
  if (microseconds.empty()) return 0;
  std::vector<double> sorted = microseconds;
  std::sort(sorted.begin(), sorted.end());
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = position - static_cast<double>(below);
  return sorted[below] * (1 - weight) + sorted[above] * weight;
}

Timing measure(const Trial& trial) {
  // Each rank writes its own figures; they are read when all ranks are done.
  std::vector<Figures> figures(static_cast<std::size_t>(trial.ranks));
  coll::run_ranks(trial.ranks,
                  [&](coll::Session& group) {
                    figures[static_cast<std::size_t>(group.rank())] = run_trial(trial, group);
                  },
                  {.algorithms = trial.algorithms});
  return combine(figures, Clocks::one);
}

Timing measure(const Trial& trial, coll::Session& group) {
  const Figures own = run_trial(trial, group);
  const std::size_t iterations = own.starts.size();
  std::vector<std::int64_t> row = own.starts;
  row.insert(row.end(), own.ends.begin(), own.ends.end());
  row.push_back(static_cast<std::int64_t>(own.wrong));
  const bool collects = group.rank() == 0;
  std::vector<std::int64_t> rows(collects ? row.size() * static_cast<std::size_t>(group.size())
                                          : 0);
  group.gather(std::span(row), std::span(rows), coll::Root{0});
  if (!collects) return {};
  std::vector<Figures> figures;
  for (auto from = rows.begin(); from != rows.end();) {
    const auto middle = from + static_cast<std::ptrdiff_t>(iterations);
    const auto end = middle + static_cast<std::ptrdiff_t>(iterations);
    figures.push_back({.starts = {from, middle},
                       .ends = {middle, end},
                       .wrong = static_cast<std::uint64_t>(*end),
                       .algorithm = own.algorithm});
    from = end + 1;
  }
  return combine(figures, trial.ground.hosts > 1 ? Clocks::several : Clocks::one);
}

}  // namespace lockstep::tool
