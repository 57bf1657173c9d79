#include "launch/run_directory.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "sys/address.h"
#include "sys/os_error.h"

namespace lockstep::tool {
namespace {

constexpr std::size_t kLongestName = 8;  // "/", a rank, and some room

/// Where it may stand, best first.
std::vector<std::string> parents() {
  std::vector<std::string> all;
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    const char* value = ::getenv(name);
    if (value != nullptr && value[0] == '/') all.emplace_back(value);
  }
  all.emplace_back("/tmp");
  return all;
}

}  // namespace

RunDirectory::RunDirectory() {
  std::string tried;
  int error = ENOENT;
  for (const std::string& parent : parents()) {
    std::string path = parent + "/lockstep-XXXXXX";
    tried += (tried.empty() ? "" : ", ") + parent;
    // Addresses are listed with commas between them.
    if (path.size() + kLongestName > sys::kMaxUnixPath || path.find(',') != std::string::npos) {
      error = ENAMETOOLONG;
    } else if (::mkdtemp(path.data()) != nullptr) {
      path_ = path;
      return;
    } else {
      error = errno;
    }
  }
  raise(sys::os_error(fmt::format("cannot make a directory for sockets in {}", tried), error));
}

RunDirectory::~RunDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep::tool
