#include "coll/long_wait.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace lockstep::coll {
namespace {

constexpr int kLooks = 10;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

std::string rate_text(double bytes_per_second) {
  constexpr double kKiB = 1024;
  constexpr double kMiB = 1024 * kKiB;
  return bytes_per_second < kMiB ? fmt::format("{:.1f} KiB/s", bytes_per_second / kKiB)
                                 : fmt::format("{:.1f} MiB/s", bytes_per_second / kMiB);
}

std::string time_text(double left) {
  constexpr double kMinute = 60;
  constexpr double kHour = 3600;
  if (left < 10 * kMinute) return fmt::format("{:.0f} s", left);
  return left < 10 * kHour ? fmt::format("{:.0f} min", left / kMinute)
                           : fmt::format("{:.0f} h", left / kHour);
}

}  // namespace

std::string names_of(const std::vector<int>& ranks) {
  return ranks.empty() ? "other ranks" : fmt::format("rank {}", fmt::join(ranks, ", "));
}

LongWait::LongWait(const SessionOptions& options, Time now, std::uint64_t progress)
    : timeout_(options.progress_timeout),
      between_reports_(options.stall_report),
      between_looks_(std::min(timeout_, between_reports_) / kLooks),
      since_(now),
      last_progress_(now),
      look_(Deadline::after(now, between_looks_)),
      report_(Deadline::after(now, between_reports_)) {
  seen_.progress = progress;
}

void LongWait::look(Time now, View view) {
  // What moved before the first look may just have filled buffers: it says nothing about the rate.
  if (!reported_) reported_ = {now, view.moved.done};
  if (view.progress != seen_.progress) last_progress_ = now;
  seen_ = std::move(view);
  ++looks_;
  ++blame_[seen_.awaited];
  look_ = Deadline::after(now, between_looks_);
}

std::string LongWait::report(Time now) {
  std::string text = names_of(seen_.awaited);
  if (!seen_.awaited.empty()) {
    text += fmt::format(" ({} % of the wait)", 100 * blame_[seen_.awaited] / looks_);
  }
  const Point last = *std::exchange(reported_, Point{now, seen_.moved.done});
  report_ = Deadline::after(now, between_reports_);
  if (seen_.moved.total == 0) return text;
  text += fmt::format("; {} moved", to_text(seen_.moved));
  if (now == last.at) return text;
  if (seen_.moved.done == last.done) return text + ", now nothing moves";
  const double rate = static_cast<double>(seen_.moved.done - last.done) / seconds(now - last.at);
  return text +
         fmt::format(", {}, about {} to go", rate_text(rate),
                     time_text(static_cast<double>(seen_.moved.total - seen_.moved.done) / rate));
}

}  // namespace lockstep::coll
