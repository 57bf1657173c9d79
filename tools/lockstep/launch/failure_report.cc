#include "launch/failure_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <string_view>

namespace lockstep::tool {
namespace {

std::string seconds(Duration duration) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(duration).count());
}

void add(std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; }

}  // namespace

std::string describe(const RankFailure& failure) {
  return fmt::format("rank {} (pid {}) {} after {}{}", failure.rank, failure.pid,
                     failure.status.to_string(), seconds(failure.ran),
                     failure.explanation.empty() ? "" : ": " + failure.explanation);
}

void put_cause_first(AttemptResult& result) {
  if (!result.failed_before_stop) return;
  auto& failures = result.failures;
  auto cause = std::find_if(failures.begin(), failures.end(), [](const RankFailure& failure) {
    return !failure.by_launcher && failure.blames.empty();
  });
  if (cause == failures.end()) {
    const std::vector<int>& blamed = failures.front().blames;
    cause = std::find_if(failures.begin(), failures.end(), [&](const RankFailure& failure) {
      return std::find(blamed.begin(), blamed.end(), failure.rank) != blamed.end();
    });
  }
  if (cause != failures.end()) std::rotate(failures.begin(), cause, cause + 1);
}

std::vector<std::string> failure_report(const AttemptResult& result) {
  std::vector<std::string> lines;
  if (!result.not_started.empty()) {
    // The same on every rank, most often; then there is nothing to add.
    lines.push_back(result.not_started);
    const sys::ExitStatus& first = result.failures.front().status;
    if (std::all_of(result.failures.begin(), result.failures.end(),
                    [&](const RankFailure& failure) { return failure.status == first; })) {
      return lines;
    }
  }
  std::size_t next = 0;
  if (result.failed_before_stop) {
    const RankFailure& first = result.failures.front();
    lines.push_back("first cause: " + describe(first));
    if (!first.blames.empty()) {
      // On another host, or it did not end.
      lines.back() +=
          fmt::format("; it says that rank {} is to blame", fmt::join(first.blames, ", "));
    }
    if (first.just_shown) {
      lines.back() += "; what it wrote stands above";
    } else if (!first.last_lines.empty()) {
      lines.push_back(fmt::format("the last lines rank {} wrote to standard error:", first.rank));
      for (const std::string& line : first.last_lines) lines.push_back("  | " + line);
    }
    next = 1;
  }
  if (result.stopped_by) {
    const char* name = ::sigabbrev_np(*result.stopped_by);
    lines.push_back(
        fmt::format("stopped by signal {} ({})", *result.stopped_by, name != nullptr ? name : "?"));
  }
  std::string others;
  std::string ended;
  for (; next < result.failures.size(); ++next) {
    const RankFailure& failure = result.failures[next];
    if (failure.by_launcher) {
      add(ended, fmt::format("rank {} ({})", failure.rank, failure.status.to_string()));
    } else {
      add(others, fmt::format("rank {} {}", failure.rank, failure.status.to_string()));
    }
  }
  if (!others.empty()) lines.push_back("then " + others);
  if (!ended.empty()) lines.push_back("ended by the launcher: " + ended);
  return lines;
}

}  // namespace lockstep::tool
