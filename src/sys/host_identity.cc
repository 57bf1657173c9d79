#include "sys/host_identity.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/status.h"
#include "sys/cgroup.h"
#include "sys/os_error.h"

namespace lockstep::sys {
namespace {

/// FNV-1a: good enough to tell hosts apart, and the same in every process.
std::uint64_t digest(const std::string& text) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001B3U;
  }
  return hash;
}

/// "net:[4026531840]"; empty if it cannot be told.
std::string namespace_of(const char* which) {
  std::array<char, 64> name{};
  const auto size =
      ::readlink(fmt::format("/proc/self/ns/{}", which).c_str(), name.data(), name.size() - 1);
  return size > 0 ? std::string(name.data(), static_cast<std::size_t>(size)) : std::string();
}

}  // namespace

bool host_is_named() {
  const char* word = std::getenv("LOCKSTEP_HOST");
  return word != nullptr && *word != '\0';
}

std::uint64_t host_identity() {
  if (host_is_named()) return digest(std::getenv("LOCKSTEP_HOST"));
  return digest(read_text("/proc/sys/kernel/random/boot_id") + namespace_of("net") +
                namespace_of("pid"));
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "?";
  return name.data();
}

std::string runtime_directory() {
  std::string parent = "/tmp";
  for (const char* variable : {"TMPDIR", "XDG_RUNTIME_DIR"}) {
    if (const char* value = std::getenv(variable); value != nullptr && *value == '/') {
      if (::access(value, W_OK | X_OK) == 0) parent = value;
    }
  }
  std::string path = fmt::format("{}/lockstep-{}", parent, ::getuid());
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    raise(os_error("cannot make the directory " + path, errno));
  }
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) raise(os_error("cannot look at " + path, errno));
  if (!S_ISDIR(found.st_mode) || found.st_uid != ::getuid() || (found.st_mode & 077) != 0) {
    throw SystemError(
        fmt::format("{} must be a directory of this user's with mode 0700; remove it, or set "
                    "XDG_RUNTIME_DIR to a directory of your own",
                    path),
        Code::permission_denied);
  }
  return path;
}

}  // namespace lockstep::sys
