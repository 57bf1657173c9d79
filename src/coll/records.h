// Records: the recorders of all groups of a rank, and their report when the generation fails: once,
// whichever group notices it first.
//
// The cause itself is thrown, and not logged a second time. The log gets the last operations of the
// group that noticed, at level info. With LOCKSTEP_HISTORY_DIR (`lockstep launch --log-dir` sets
// it) everything that is recorded, of all groups, goes to a file of the rank's there. A launcher is
// told if other ranks are to blame (LOCKSTEP_FAILURE_FILE). Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"
#include "base/mutex.h"
#include "base/status.h"
#include "coll/group_spec.h"
#include "coll/recorder.h"

namespace lockstep::coll {

class Records {
 public:
  /// `directory`: where the file goes; empty: there is none.
  explicit Records(int rank, std::string directory = environment().history_dir);

  /// The recorder of a group; kept as long as its owner keeps it.
  std::shared_ptr<Recorder> add(const GroupSpec& group);

  /// `noticed`: of the group whose operation failed. Only the first call does something.
  void report(const Status& failure, const Recorder& noticed) noexcept;

  /// What is recorded of all groups, each under a line that tells which ranks are in it.
  [[nodiscard]] std::string text() const;

 private:
  struct Group {
    std::string name;
    std::weak_ptr<const Recorder> recorder;
  };
  /// Writes the file; its path, or why there is none.
  [[nodiscard]] std::string write(const Status& failure) const;
  /// For the launcher, unless this rank has a part in it.
  void name_the_culprits(const Status& failure) const;

  int rank_;
  std::string directory_;
  std::atomic<bool> reported_ = false;
  mutable Mutex mutex_;
  std::vector<Group> groups_ GUARDED_BY(mutex_);
};

}  // namespace lockstep::coll
