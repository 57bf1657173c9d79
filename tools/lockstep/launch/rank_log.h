// RankLog: everything a rank writes, as it came, in a file of its own.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "sys/descriptor.h"

namespace lockstep::tool {

class RankLog {
 public:
  RankLog() = default;  // none
  /// Begins the file anew, SystemError if that is impossible.
  explicit RankLog(std::string path);

  /// What went wrong, once: after an error nothing more is written.
  Status write(std::string_view bytes);

 private:
  std::string path_;
  sys::Descriptor file_;
};

/// Makes the directory if it is not there.
void make_log_directory(const std::string& path);

}  // namespace lockstep::tool
