#include "bench/support/paired.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

namespace lockstep::bench {
namespace {

double now(Timer timer) {
  timespec time{};
  clock_gettime(timer == Timer::wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Cores this thread may run on.
std::vector<int> usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  }
  return cores;
}

void pin_to(int core) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(core, &mask);
  pthread_setaffinity_np(pthread_self(), sizeof(mask), &mask);  // best effort
}

/// Polls, and gives the core away now and then in case the other thread needs it.
void wait_for(const std::atomic<int>& line, int value) {
  for (int polls = 1; line.load(std::memory_order_acquire) != value; ++polls) {
    if (polls % 10'000 == 0) std::this_thread::yield();
  }
}

}  // namespace

void pin_one_of(int threads, int index) {
  const std::vector<int> cores = usable_cores();
  if (static_cast<std::size_t>(threads) <= cores.size())
    pin_to(cores[static_cast<std::size_t>(index)]);
}

double ping_pong_ns() {
  const std::vector<int> cores = usable_cores();
  if (cores.size() < 2) return 0;
  constexpr int kRounds = 5;  // the fastest counts: the others were interrupted
  constexpr int kTrips = 2000;
  alignas(128) std::atomic<int> line = 0;  // even: ours to raise, odd: theirs
  std::jthread other([&] {
    pin_to(cores[1]);
    for (int i = 0; i < kRounds * kTrips; ++i) {
      wait_for(line, 2 * i + 1);
      line.store(2 * i + 2, std::memory_order_release);
    }
  });
  double best = 0;
  std::jthread one([&] {
    pin_to(cores[0]);
    for (int round = 0; round < kRounds; ++round) {
      const double start = now(Timer::wall);
      for (int i = round * kTrips; i < (round + 1) * kTrips; ++i) {
        line.store(2 * i + 1, std::memory_order_release);
        wait_for(line, 2 * i + 2);
      }
      const double one_way = (now(Timer::wall) - start) * 1e9 / (2.0 * kTrips);
      if (round == 0 || one_way < best) best = one_way;
    }
  });
  one.join();
  other.join();
  return best;
}

Distance distance_of(double ping_pong_ns) noexcept {
  if (ping_pong_ns <= 0) return Distance::none;
  if (ping_pong_ns < 20) return Distance::sibling;
  return ping_pong_ns < 100 ? Distance::near : Distance::far;
}

std::string_view to_string(Distance distance) noexcept {
  switch (distance) {
    case Distance::none:
      return "one core";
    case Distance::sibling:
      return "sibling cores";
    case Distance::near:
      return "near cores";
    case Distance::far:
      return "far cores";
  }
  return "?";
}

double seconds(Timer timer, const std::function<void()>& run) {
  const double start = now(timer);
  run();
  return now(timer) - start;
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - std::floor(at)) * (values[above] - values[below]);
}

void Pairs::add(double ours_seconds, double other_seconds, Distance distance) {
  ratios_.push_back(other_seconds / ours_seconds);
  ours_.push_back(ours_seconds);
  other_.push_back(other_seconds);
  distance_ = distance;
}

PairedResult Pairs::result() const {
  return {.median = quantile(ratios_, 0.5),
          .lower_quartile = quantile(ratios_, 0.25),
          .upper_quartile = quantile(ratios_, 0.75),
          .pairs = count(),
          .dropped = dropped_,
          .ours_seconds = quantile(ours_, 0.5),
          .other_seconds = quantile(other_, 0.5),
          .distance = distance_};
}

PairedResult paired_ratio(const PairOptions& options, const std::function<void()>& ours,
                          const std::function<void()>& other) {
  return paired_ratio_timed(
      options, [&] { return seconds(options.timer, ours); },
      [&] { return seconds(options.timer, other); });
}

PairedResult paired_ratio_timed(const PairOptions& options, const std::function<double()>& ours,
                                const std::function<double()>& other) {
  ours();
  other();
  Pairs pairs;
  Distance before = distance_of(ping_pong_ns());
  for (int i = 0; i < options.attempts && pairs.count() < options.pairs; ++i) {
    double ours_time = 0;
    double other_time = 0;
    if (i % 2 == 0) {
      ours_time = ours();
      other_time = other();
    } else {
      other_time = other();
      ours_time = ours();
    }
    const Distance after = distance_of(ping_pong_ns());
    if (after == before) {
      pairs.add(ours_time, other_time, after);
    } else {
      pairs.drop();
    }
    before = after;
  }
  return pairs.result();
}

namespace {

std::string text_of(const PairedResult& result) {
  return fmt::format(
      "ratio {:.3f}, quartiles {:.3f} to {:.3f}, {} pairs ({} dropped), ours {:.1f} us, other "
      "{:.1f} us, {}",
      result.median, result.lower_quartile, result.upper_quartile, result.pairs, result.dropped,
      result.ours_seconds * 1e6, result.other_seconds * 1e6, to_string(result.distance));
}

}  // namespace

void Targets::add(std::string_view name, const PairedResult& result, double required) {
  add(name, result.pairs >= kMinPairs ? result.median : 0, required, text_of(result));
}

void Targets::print(std::string_view name, const PairedResult& result) {
  fmt::print("{}: {}\n", name, text_of(result));
  std::fflush(stdout);
}

void Targets::add(std::string_view name, double measured, double required,
                  std::string_view spread) {
  const bool met = measured >= required;
  if (!met) ++short_;
  fmt::print("{}: {}\n", name, spread);
  fmt::print("target {} measured {:.2f} required {:.2f} {}\n", name, measured, required,
             met ? "ok" : "short");
  std::fflush(stdout);
}

}  // namespace lockstep::bench
