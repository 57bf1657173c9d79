#include "bench/peers/duel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "bench/peers/finalists.h"
#include "bench/peers/networks.h"
#include "bench/peers/process.h"

namespace lockstep::bench::peers {
namespace {

using std::chrono::steady_clock;

template <class... T>
void say(fmt::format_string<T...> format, T&&... values) {
  fmt::print(stderr, format, std::forward<T>(values)...);
  std::fputc('\n', stderr);
}

std::uint32_t clamped(double value, double low, double high) {
  return static_cast<std::uint32_t>(std::clamp(value, low, high));
}

/// One contestant's side of a row: knows how many calls make a repetition, and is out of the race
/// once it has failed.
class Runner {
 public:
  Runner(const Row& row, Arena& arena, Outcome& outcome)
      : row_(row), arena_(arena), outcome_(outcome) {}

  [[nodiscard]] bool out() const { return !outcome_.error.empty(); }
  [[nodiscard]] Outcome& outcome() { return outcome_; }

  /// Starts the contestant and finds out how long a call takes.
  void prepare() {
    order_.job = outcome_.entry.job;
    order_.warmup = row_.small ? 20 : 2;
    order_.loops = row_.small ? 20 : 1;
    order_.stretches = 3;
    const std::optional<double> seconds = repetition();
    if (!seconds) return;
    if (row_.small) {
      order_.loops = clamped(2e-3 / *seconds, 10, 20'000);
      order_.stretches = 5;
      order_.warmup = order_.loops / 4;
    } else {
      order_.stretches = clamped(40e-3 / *seconds, 3, 25);
      order_.warmup = *seconds > 5e-3 ? 1 : 3;
    }
  }

  /// Seconds of a call: the median of a handful. Nothing if the contestant is out.
  std::optional<double> repetition() {
    check_interrupted();
    if (out()) return std::nullopt;
    if (outcome_.entry.contestant == kLine) return line_seconds(bytes_of(order_.job));
    try {
      return quantile(arena_.contestant(outcome_.entry.contestant).measure(order_), 0.5);
    } catch (const GroupFailed& failure) {
      outcome_.error = failure.what();
      arena_.disqualify(outcome_.entry.contestant);
      say("{}: {} is out: {}", row_.name, outcome_.entry.label(), failure.what());
      return std::nullopt;
    }
  }

 private:
  const Row& row_;
  Arena& arena_;
  Outcome& outcome_;
  Order order_;
};

/// Watches how far the cores are apart: the probe after a repetition is the one before the next.
class Probe {
 public:
  Probe() : last_(now()) {}
  /// Did the distance stay the same since the last call?
  bool steady() {
    const Distance before = last_;
    last_ = now();
    return last_ == before;
  }
  [[nodiscard]] Distance distance() const { return last_; }

 private:
  static Distance now() { return distance_of(ping_pong_ns()); }
  Distance last_;
};

/// Everybody in turn, until each has so many repetitions that count.
void try_out(const std::vector<Runner*>& runners, std::size_t repetitions) {
  constexpr std::size_t kAttempts = 4;  // for each repetition
  Probe probe;
  for (std::size_t round = 0; round < kAttempts * repetitions; ++round) {
    bool enough = true;
    for (Runner* runner : runners) {
      Outcome& outcome = runner->outcome();
      if (outcome.seconds.size() >= repetitions) continue;
      const std::optional<double> seconds = runner->repetition();
      const bool steady = probe.steady();
      if (!seconds) continue;
      if (steady) {
        outcome.seconds.push_back(*seconds);
      } else {
        ++outcome.dropped;
      }
      enough = enough && outcome.seconds.size() >= repetitions;
    }
    if (enough) return;
  }
}

/// Of those that are still in the race.
void choose_finalists(std::vector<Outcome>& others) {
  std::map<std::string, std::vector<Outcome*>> families;
  for (Outcome& other : others) {
    if (other.error.empty()) families[other.entry.family()].push_back(&other);
  }
  for (const auto& [name, members] : families) {
    std::vector<std::optional<double>> times;
    for (const Outcome* member : members) {
      times.push_back(member->seconds.empty() ? std::nullopt
                                              : std::optional(quantile(member->seconds, 0.5)));
    }
    const std::vector<bool> chosen = finalists_of(times);
    for (std::size_t i = 0; i < members.size(); ++i) members[i]->finalist = chosen[i];
  }
}

/// We and one finalist in turns, and the ratios of the pairs that count.
class Match {
 public:
  Match(Runner& ours, Runner& other) : ours_(ours), other_(other) {}

  [[nodiscard]] int pairs() const { return taken_.count(); }
  [[nodiscard]] int dropped() const { return taken_.dropped(); }
  [[nodiscard]] bool over(const DuelOptions& options) const {
    return ours_.out() || other_.out() || pairs() >= options.pairs ||
           pairs() + dropped() >= options.attempts;
  }

  void play(Probe& probe) {
    const bool we_first = (pairs() + dropped()) % 2 == 0;
    Runner& first = we_first ? ours_ : other_;
    Runner& second = we_first ? other_ : ours_;
    const std::optional<double> a = first.repetition();
    const bool first_steady = probe.steady();
    const std::optional<double> b = second.repetition();
    const bool second_steady = probe.steady();
    if (!a || !b) return;
    note(first, first_steady, *a);
    note(second, second_steady, *b);
    if (first_steady && second_steady) {
      taken_.add(we_first ? *a : *b, we_first ? *b : *a, probe.distance());
    } else {
      taken_.drop();
    }
  }

  void finish() { other_.outcome().against_ours = taken_.result(); }

 private:
  static void note(Runner& runner, bool steady, double seconds) {
    if (steady) {
      runner.outcome().seconds.push_back(seconds);
    } else {
      ++runner.outcome().dropped;
    }
  }

  Runner& ours_;
  Runner& other_;
  Pairs taken_;
};

void play_all(const std::string& row, std::vector<Match>& matches, const DuelOptions& options) {
  const auto start = steady_clock::now();
  Probe probe;
  for (int round = 1;; ++round) {
    bool over = true;
    int pairs = options.pairs;
    int dropped = 0;
    for (Match& match : matches) {
      if (!match.over(options)) {
        match.play(probe);
        over = over && match.over(options);
      }
      pairs = std::min(pairs, match.pairs());
      dropped += match.dropped();
    }
    const double elapsed = std::chrono::duration<double>(steady_clock::now() - start).count();
    const bool late = elapsed > options.limit && pairs >= Targets::kMinPairs;
    if (round % 5 == 0 || over || late)
      say("{}: {} of {} pairs against each of {}, {} dropped, {:.0f} s", row, pairs, options.pairs,
          matches.size(), dropped, elapsed);
    if (over || late) return;
  }
}

}  // namespace

const Outcome* RowResult::hardest(const std::string& family) const {
  const Outcome* found = nullptr;
  for (const Outcome& other : others) {
    if (!other.finalist || other.entry.family() != family || other.against_ours.pairs == 0)
      continue;
    if (found == nullptr || other.against_ours.median < found->against_ours.median) found = &other;
  }
  return found;
}

RowResult measure_row(const Row& row, Arena& arena, const DuelOptions& options) {
  RowResult result;
  result.ours.entry = row.ours;
  for (const Entry& entry : row.others) result.others.push_back({.entry = entry});

  arena.forget();
  arena.shape(row.shaped);
  Runner ours(row, arena, result.ours);
  std::vector<Runner> others;
  for (Outcome& other : result.others) others.emplace_back(row, arena, other);
  std::vector<Runner*> everybody = {&ours};
  for (Runner& other : others) everybody.push_back(&other);

  say("{}: starting and trying out {} contestants", row.name, everybody.size());
  for (Runner* runner : everybody) runner->prepare();
  const int repetitions = ours.out() ? options.pairs : options.trials;
  try_out(everybody, static_cast<std::size_t>(repetitions));
  if (ours.out()) return result;

  choose_finalists(result.others);
  std::vector<Match> matches;
  for (Runner& other : others) {
    if (other.outcome().finalist) matches.emplace_back(ours, other);
  }
  play_all(row.name, matches, options);
  for (Match& match : matches) match.finish();
  return result;
}

}  // namespace lockstep::bench::peers
