#include "sys/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace lockstep::sys {
namespace {

// A group has what all groups above it leave. A container may not see its own group's folder, only
// the mount point, which is then its own group.
double along_path(const std::filesystem::path& mount, const std::string& group,
                  const GroupLimit& limit) {
  double least = limit(mount);
  std::filesystem::path directory = mount;
  for (const auto& part : std::filesystem::path(group).relative_path()) {
    directory /= part;
    least = std::min(least, limit(directory));
  }
  return least;
}

bool names(const std::string& controllers, const std::string& controller) {
  std::istringstream list(controllers);
  for (std::string one; std::getline(list, one, ',');) {
    if (one == controller) return true;
  }
  return false;
}

}  // namespace

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return std::move(text).str();
}

std::optional<double> number_in(const std::filesystem::path& path) {
  std::istringstream text(read_text(path));
  double value = 0;
  if (text >> value) return value;
  return std::nullopt;
}

double least_limit(const std::string& memberships, const std::string& mount,
                   const std::string& controller, const GroupLimit& version1,
                   const GroupLimit& version2) {
  double least = kUnlimited;
  std::istringstream lines(memberships);
  for (std::string line; std::getline(lines, line);) {  // id:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    const std::filesystem::path root(mount);
    if (controllers.empty()) {
      least = std::min(least, along_path(root, group, version2));
    } else if (names(controllers, controller)) {
      least = std::min({least, along_path(root / controller, group, version1),
                        along_path(root / controllers, group, version1)});
    }
  }
  return least;
}

}  // namespace lockstep::sys
