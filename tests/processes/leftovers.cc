#include "tests/processes/leftovers.h"

#include <sys/wait.h>

#include <cerrno>
#include <filesystem>
#include <iterator>

#include "lockstep/error.h"
#include "sys/posix_net.h"

namespace lockstep::processes {
namespace {

namespace fs = std::filesystem;

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
