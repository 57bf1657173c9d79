#include "tests/processes/leftovers.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "lockstep/error.h"
#include "sys/posix_net.h"

namespace lockstep::processes {
namespace {

namespace fs = std::filesystem;

bool is_number(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

int parent_of(const fs::path& process) {
  std::ifstream file(process / "stat");
  std::string line;
  std::getline(file, line);
  // "pid (name) state parent ...", and a name may have spaces.
  std::istringstream rest(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string state;
  int parent = 0;
  rest >> state >> parent;
  return parent;
}

/// Segments that children of this process have open.
int segments_of_children() {
  int found = 0;
  std::error_code gone;
  for (const auto& process : fs::directory_iterator("/proc", gone)) {
    if (!is_number(process.path().filename().string())) continue;
    if (parent_of(process.path()) != ::getpid()) continue;
    for (const auto& entry : fs::directory_iterator(process.path() / "fd", gone)) {
      const std::string target = fs::read_symlink(entry.path(), gone).string();
      if (target.find("memfd:lockstep") != std::string::npos) ++found;
    }
  }
  return found;
}

bool is_random_name(const std::string& name) {
  return name.size() == 16 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

int open_descriptors() {
  const auto entries = fs::directory_iterator("/proc/self/fd");
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

std::vector<std::string> leftovers(const ProcessCluster& cluster) {
  std::vector<std::string> found;
  if (::waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD) found.emplace_back("a child");
  if (const int segments = segments_of_children(); segments > 0) {
    found.push_back(fmt::format("{} shared segments", segments));
  }
  for (const std::string& address : cluster.addresses()) {
    if (address.empty() || address.rfind("unix:", 0) == 0) continue;
    try {
      (void)sys::PosixNetwork().listen(address);
    } catch (const Error& error) {
      found.emplace_back(error.what());
    }
  }
  for (const auto& entry : fs::recursive_directory_iterator(cluster.directory())) {
    if (is_random_name(entry.path().filename().string())) found.push_back(entry.path().string());
  }
  return found;
}

}  // namespace lockstep::processes
