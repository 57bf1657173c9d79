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

/// The value a fraction of the way through the sorted numbers.
double quantile(std::vector<double> numbers, double fraction) {
  if (numbers.empty()) return 0;
  std::sort(numbers.begin(), numbers.end());
  const double at = fraction * static_cast<double>(numbers.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, numbers.size() - 1);
  return numbers[below] + (at - std::floor(at)) * (numbers[above] - numbers[below]);
}

double median(const std::vector<double>& numbers) { return quantile(numbers, 0.5); }

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

PairedResult paired_ratio(const PairOptions& options, const std::function<void()>& ours,
                          const std::function<void()>& other) {
  ours();
  other();
  PairedResult result;
  std::vector<double> ratios;
  std::vector<double> ours_times;
  std::vector<double> other_times;
  Distance before = distance_of(ping_pong_ns());
  for (int i = 0; i < options.attempts && result.pairs < options.pairs; ++i) {
    double ours_time = 0;
    double other_time = 0;
    if (i % 2 == 0) {
      ours_time = seconds(options.timer, ours);
      other_time = seconds(options.timer, other);
    } else {
      other_time = seconds(options.timer, other);
      ours_time = seconds(options.timer, ours);
    }
    const Distance after = distance_of(ping_pong_ns());
    if (after == before) {
      ratios.push_back(other_time / ours_time);
      ours_times.push_back(ours_time);
      other_times.push_back(other_time);
      ++result.pairs;
    } else {
      ++result.dropped;
    }
    before = after;
  }
  result.median = median(ratios);
  result.lower_quartile = quantile(ratios, 0.25);
  result.upper_quartile = quantile(ratios, 0.75);
  result.ours_seconds = median(ours_times);
  result.other_seconds = median(other_times);
  result.distance = before;
  return result;
}

void Targets::add(std::string_view name, const PairedResult& result, double required) {
  const std::string spread = fmt::format(
      "ratio {:.3f}, quartiles {:.3f} to {:.3f}, {} pairs ({} dropped), ours {:.1f} us, other "
      "{:.1f} us, {}",
      result.median, result.lower_quartile, result.upper_quartile, result.pairs, result.dropped,
      result.ours_seconds * 1e6, result.other_seconds * 1e6, to_string(result.distance));
  add(name, result.pairs >= kMinPairs ? result.median : 0, required, spread);
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
