// LongWait: what an operation knows of its own wait once that has become long: when something last
// moved, how fast it moves, and who is waited for most.
//
// It looks now and then, ten times before anything is due; between the looks it costs nothing. One
// thread.
//
//   LongWait wait(options, now, progress);
//   while (!done by wait.next_look()) {
//     wait.look(now, {progress, moved, awaited});
//     if (wait.is_stuck(now)) ...
//     if (wait.report_is_due(now)) log(wait.report(now));
//   }
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "coll/moved.h"
#include "lockstep/coll/options.h"

namespace lockstep::coll {

class LongWait {
 public:
  /// `progress` grows whenever something is done or moved.
  LongWait(const SessionOptions& options, Time now, std::uint64_t progress);

  /// What can be seen of the operation.
  struct View {
    std::uint64_t progress = 0;
    Moved moved = {};
    std::vector<int> awaited = {};  // ranks of the generation; empty: not known
  };
  [[nodiscard]] Deadline next_look() const noexcept {
    return earlier(look_, earlier(report_, stuck()));
  }
  void look(Time now, View view);

  [[nodiscard]] Duration waited(Time now) const noexcept { return now - since_; }
  /// Whether nothing has moved for the progress timeout, as of the last look.
  [[nodiscard]] bool is_stuck(Time now) const noexcept { return stuck().passed(now); }
  [[nodiscard]] bool report_is_due(Time now) const noexcept { return report_.passed(now); }
  /// For whom it waits, and how it goes; the rate counts from the last report.
  std::string report(Time now);

 private:
  struct Point {
    Time at{};
    std::uint64_t done = 0;  // bytes
  };
  [[nodiscard]] Deadline stuck() const noexcept {
    return Deadline::after(last_progress_, timeout_);
  }

  Duration timeout_;
  Duration between_reports_;
  Duration between_looks_;
  Time since_;
  Time last_progress_;
  Deadline look_;
  Deadline report_;
  View seen_;                              // at the last look
  std::optional<Point> reported_;          // the first look, then the last report
  std::map<std::vector<int>, int> blame_;  // at how many looks these were waited for
  int looks_ = 0;
};

/// "rank 1, 2"; where it is not known who is missing, nobody is named.
std::string names_of(const std::vector<int>& ranks);

}  // namespace lockstep::coll
