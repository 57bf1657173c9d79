// Fair comparisons on a noisy machine: ours and the other take turns in the same run, each pair
// gives one ratio, and the median of the ratios is what counts.
//
//   Targets targets;
//   const PairedResult result = paired_ratio({}, [&] { ours(); }, [&] { other(); });
//   targets.add("kernel_sum_2x64MiB_f32", result, 0.80);
//   return targets.finish();          // 1 if a target is short
//
// A virtual machine moves its cores about, and rates change with their distance. Every pair is
// therefore bracketed by a cache-line probe and dropped if the distance changed on the way.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::bench {

/// One-way time of a cache line between two threads on two cores, in nanoseconds: about 15 for
/// siblings, 35 within a shared cache, 200 across. Zero if there is only one core.
double ping_pong_ns();

/// Puts the calling thread, one of `threads` that work together, on a core of its own, as the
/// probe's threads are; does nothing if there are fewer cores than threads.
void pin_one_of(int threads, int index);

/// What the probe says about the two cores.
enum class Distance { none, sibling, near, far };
Distance distance_of(double ping_pong_ns) noexcept;
std::string_view to_string(Distance distance) noexcept;

/// Wall time is what users wait for. Thread time counts this thread alone: right for code that
/// neither waits nor has helpers, since it leaves out the turns of other programs.
enum class Timer { wall, thread };

/// Seconds one call takes.
double seconds(Timer timer, const std::function<void()>& run);

struct PairOptions {
  int pairs = 21;
  /// Pairs tried at most; those whose probe changed do not count.
  int attempts = 63;
  Timer timer = Timer::wall;
};

/// Ratios are speeds: time of the other / time of ours, higher is better for us.
struct PairedResult {
  double median = 0;
  double lower_quartile = 0;
  double upper_quartile = 0;
  int pairs = 0;
  int dropped = 0;
  double ours_seconds = 0;  // medians
  double other_seconds = 0;
  Distance distance = Distance::none;  // of the last pair
};

/// The value a share of the way through the sorted values; 0 if there are none.
double quantile(std::vector<double> values, double share);

/// Pairs as they are taken.
class Pairs {
 public:
  void add(double ours_seconds, double other_seconds, Distance distance);
  /// One whose probe changed.
  void drop() noexcept { ++dropped_; }
  [[nodiscard]] int count() const noexcept { return static_cast<int>(ratios_.size()); }
  [[nodiscard]] int dropped() const noexcept { return dropped_; }
  [[nodiscard]] PairedResult result() const;

 private:
  std::vector<double> ratios_;
  std::vector<double> ours_;
  std::vector<double> other_;
  int dropped_ = 0;
  Distance distance_ = Distance::none;
};

/// Both run once to warm up, then in turns; who goes first alternates.
PairedResult paired_ratio(const PairOptions& options, const std::function<void()>& ours,
                          const std::function<void()>& other);

/// The same for contestants that return the seconds they took: what they prepare is not counted.
PairedResult paired_ratio_timed(const PairOptions& options, const std::function<double()>& ours,
                                const std::function<double()>& other);

/// Prints one line per target, in the form that scripts read, and remembers whether all were met.
class Targets {
 public:
  static constexpr int kMinPairs = 15;

  /// Fewer than kMinPairs pairs are no measurement: the target is short.
  void add(std::string_view name, const PairedResult& result, double required);
  /// Prints the result of a row that has no target.
  static void print(std::string_view name, const PairedResult& result);
  /// A value measured in some other way; `spread` goes on a line of its own before it.
  void add(std::string_view name, double measured, double required, std::string_view spread);
  /// The exit code of the program.
  [[nodiscard]] int finish() const noexcept { return short_ == 0 ? 0 : 1; }

 private:
  int short_ = 0;
};

}  // namespace lockstep::bench
