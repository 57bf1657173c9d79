// RunDirectory: a fresh directory of mode 0700 for the sockets and the key of one start, removed
// with all that is in it.
//
// It stands under $XDG_RUNTIME_DIR, else $TMPDIR, else /tmp: the first where it can be made and
// where the path of a Unix socket fits.
#pragma once

#include <string>

namespace lockstep::tool {

class RunDirectory {
 public:
  /// SystemError saying what was tried.
  RunDirectory();
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep::tool
