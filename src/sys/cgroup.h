// Control groups of either version: the least a process is left of something, over all the groups
// it is in and all the groups above them.
#pragma once

#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>

namespace lockstep::sys {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// What one group's folder says; kUnlimited if nothing.
using GroupLimit = std::function<double(const std::filesystem::path& folder)>;

/// `memberships` is what /proc/self/cgroup says, `mount` where the groups are mounted.
double least_limit(const std::string& memberships, const std::string& mount,
                   const std::string& controller, const GroupLimit& version1,
                   const GroupLimit& version2);

/// Empty if the file cannot be read.
std::string read_text(const std::filesystem::path& path);
/// The number a file begins with, if it does.
std::optional<double> number_in(const std::filesystem::path& path);

}  // namespace lockstep::sys
