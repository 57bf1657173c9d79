#include "launch/rank_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "sys/os_error.h"

namespace lockstep::tool {

RankLog::RankLog(std::string path) : path_(std::move(path)) {
  constexpr mode_t kMode = 0666;  // less the user's umask
  file_ = sys::Descriptor(
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOCTTY, kMode));
  if (!file_.valid()) raise(sys::os_error(fmt::format("cannot write the log {}", path_), errno));
}

Status RankLog::write(std::string_view bytes) {
  while (file_.valid() && !bytes.empty()) {
    const ssize_t written =
        sys::retry_on_signal([&] { return ::write(file_.get(), bytes.data(), bytes.size()); });
    if (written < 0) {
      Status error = sys::os_error(fmt::format("the log {} ends here", path_), errno);
      file_ = {};
      return error;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

void make_log_directory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) raise(sys::os_error(fmt::format("cannot make {} for logs", path), error.value()));
}

}  // namespace lockstep::tool
