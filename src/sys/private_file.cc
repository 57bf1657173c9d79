#include "sys/private_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <string_view>

#include "lockstep/error.h"
#include "sys/descriptor.h"
#include "sys/os_error.h"

namespace lockstep::sys {
namespace {

/// As a shell reads it back.
std::string quoted(const std::string& path) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,:=@%";
  if (!path.empty() && path.find_first_not_of(kPlain) == std::string::npos) return path;
  std::string text = "'";
  for (const char c : path) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

bool is_ours_or_roots(const struct stat& file) {
  return file.st_uid == ::geteuid() || file.st_uid == 0;
}

/// Nobody but this user and root can put something else in the place of a link in that directory.
bool is_fixed(const struct stat& link, const struct stat& directory) {
  const bool is_shared = (directory.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  const bool is_sticky = (directory.st_mode & S_ISVTX) != 0;
  return is_ours_or_roots(link) && is_ours_or_roots(directory) && (!is_shared || is_sticky);
}

/// The path without symbolic links. ConfigError if others may turn one of them elsewhere. The files
/// of a Secret volume of Kubernetes are links to links in a directory of root's.
std::string without_links(const std::string& path) {
  constexpr int kMostLinks = 16;
  namespace fs = std::filesystem;
  const fs::path whole = fs::absolute(path).relative_path();
  std::deque<fs::path> left(whole.begin(), whole.end());
  fs::path done = "/";
  for (int links = 0; !left.empty();) {
    const fs::path name = left.front();
    left.pop_front();
    if (name.empty() || name == ".") continue;
    if (name == "..") {
      done = done.parent_path();
      continue;
    }
    const fs::path next = done / name;
    struct stat file {};
    struct stat directory {};
    if (::lstat(next.c_str(), &file) != 0 || ::lstat(done.c_str(), &directory) != 0) {
      const Status why = os_error(fmt::format("cannot open {}", path), errno);
      throw ConfigError(why.message(), why.code());
    }
    if (!S_ISLNK(file.st_mode)) {
      done = next;
      continue;
    }
    if (!is_fixed(file, directory) || ++links > kMostLinks) {
      throw ConfigError(
          fmt::format("{0} leads through the symbolic link {1}, which others may turn elsewhere; "
                      "name the file itself: readlink -f {2}",
                      path, next.string(), quoted(path)),
          Code::failed_precondition);
    }
    const fs::path target = fs::read_symlink(next);
    if (target.is_absolute()) done = "/";
    const fs::path names = target.relative_path();
    left.insert(left.begin(), names.begin(), names.end());
  }
  return done.string();
}

Descriptor open_file(const std::string& path) {
  // Without O_NONBLOCK a pipe of that name would keep us waiting for a writer.
  const auto open = [](const std::string& name) {
    return Descriptor(retry_on_signal(
        [&] { return ::open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK); }));
  };
  Descriptor file = open(path);
  if (!file.valid() && errno == ELOOP) file = open(without_links(path));
  if (file.valid()) return file;
  const Status why = os_error(fmt::format("cannot open {}", path), errno);
  throw ConfigError(why.message(), why.code());
}

}  // namespace

void check_private(const std::string& path, const struct stat& file) {
  if (!S_ISREG(file.st_mode)) {
    throw ConfigError(fmt::format("{} is not a regular file; a secret must be in one", path),
                      Code::failed_precondition);
  }
  if (file.st_uid != ::geteuid() && file.st_uid != 0) {
    throw ConfigError(fmt::format("{} belongs to user {}, who may change it; make it yours: "
                                  "chown {} {}",
                                  path, file.st_uid, ::geteuid(), quoted(path)),
                      Code::permission_denied);
  }
  constexpr mode_t kAll = 07777;
  const mode_t mode = file.st_mode & kAll;
  // Kubernetes opens a Secret volume to the pod's group (fsGroup) in this way.
  const bool is_of_a_volume = file.st_uid == 0 && (mode & ~mode_t{0440}) == 0;
  if ((mode & ~mode_t{0600}) != 0 && !is_of_a_volume) {
    throw ConfigError(fmt::format("{} has mode {:04o}: others may know the secret in it; close it "
                                  "with chmod 600 {}, and better make a new secret",
                                  path, mode, quoted(path)),
                      Code::permission_denied);
  }
}

std::size_t read_private_file(const std::string& path, std::span<std::byte> into) {
  const Descriptor file = open_file(path);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) {
    raise(os_error(fmt::format("cannot look at {}", path), errno));
  }
  check_private(path, info);
  if (static_cast<std::size_t>(info.st_size) > into.size()) {
    throw ConfigError(fmt::format("{} has {} bytes, which is too long; at most {} can be right",
                                  path, info.st_size, into.size()));
  }
  std::size_t size = 0;
  while (size < into.size()) {
    const ssize_t got =
        retry_on_signal([&] { return ::read(file.get(), into.data() + size, into.size() - size); });
    if (got < 0) raise(os_error(fmt::format("cannot read {}", path), errno));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  return size;
}

}  // namespace lockstep::sys
