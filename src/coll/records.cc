#include "coll/records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/log.h"

namespace lockstep::coll {
namespace {

constexpr std::uint64_t kLogged = 8;  // operations

std::string name_of(const GroupSpec& group) {
  if (group.purpose == Purpose::messages) {
    return fmt::format("messages from rank {} to rank {}", group.members[0], group.members[1]);
  }
  return fmt::format("{} {}", group.members.size() == 1 ? "rank" : "ranks",
                     fmt::join(group.members, ", "));
}

}  // namespace

Records::Records(int rank, std::string directory) : rank_(rank), directory_(std::move(directory)) {
  // A process that joins anew has got over what it said there.
  const std::string& blame = environment().failure_file;
  if (!blame.empty()) ::unlink(blame.c_str());
}

std::shared_ptr<Recorder> Records::add(const GroupSpec& group) {
  auto recorder = std::make_shared<Recorder>();
  const MutexLock lock(mutex_);
  std::erase_if(groups_, [](const Group& each) { return each.recorder.expired(); });
  groups_.push_back({name_of(group), recorder});
  return recorder;
}

std::string Records::text() const {
  std::vector<std::pair<std::string, std::shared_ptr<const Recorder>>> groups;
  {
    const MutexLock lock(mutex_);
    for (const Group& each : groups_) groups.emplace_back(each.name, each.recorder.lock());
  }
  std::string text;
  for (const auto& [name, recorder] : groups) {
    if (recorder) text += fmt::format("{}:\n{}", name, recorder->text());
  }
  return text;
}

std::string Records::write(const Status& failure) const {
  if (directory_.empty()) {
    return "LOCKSTEP_HISTORY_DIR=directory keeps all of them, or Session::history()";
  }
  // A process may join again, and have several ranks.
  static std::atomic<int> files = 0;
  const std::string path =
      fmt::format("{}/history-rank{}-pid{}-{}.txt", directory_, rank_, getpid(), ++files);
  std::ofstream file(path);
  file << failure.message() << "\n\n" << text();
  file.close();
  return file ? fmt::format("all of them: {}", path) : fmt::format("{} cannot be written", path);
}

void Records::name_the_culprits(const Status& failure) const {
  const std::string& path = environment().failure_file;
  const std::vector<int>& culprits = failure.culprits();
  if (path.empty() || culprits.empty() ||
      std::find(culprits.begin(), culprits.end(), rank_) != culprits.end()) {
    return;
  }
  std::ofstream(path) << fmt::format("{}\n{}\n", fmt::join(culprits, " "), failure.message());
}

void Records::report(const Status& failure, const Recorder& noticed) noexcept {
  if (reported_.exchange(true)) return;
  try {
    name_the_culprits(failure);
    const std::string where = write(failure);
    log_info("last operations of rank {} ({}):\n{}", rank_, where, noticed.text(kLogged));
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; the failure itself is thrown
  }
}

}  // namespace lockstep::coll
