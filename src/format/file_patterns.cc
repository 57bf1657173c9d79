#include "format/file_patterns.h"

#include <fmt/format.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>

#include "lockstep/error.h"

namespace lockstep::format {
namespace {

constexpr int kMostShards = 99'999;  // five digits

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode);
}

[[noreturn]] void not_found(const std::string& what) {
  throw SystemError(what + "; check the path and that this host sees the files", Code::not_found);
}

/// The 16 of "name@16".
std::optional<int> shards_of(std::string_view pattern) {
  const std::size_t at = pattern.rfind('@');
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  const std::string_view digits = pattern.substr(at + 1);
  int shards = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), shards);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (shards < 1 || shards > kMostShards) return std::nullopt;
  return shards;
}

std::vector<std::string> all_shards(const std::string& pattern, int shards) {
  const std::string prefix = pattern.substr(0, pattern.rfind('@'));
  std::vector<std::string> names;
  for (int shard = 0; shard < shards; ++shard) {
    names.push_back(shard_name(prefix, shard, shards));
    if (!is_file(names.back())) {
      not_found(fmt::format("{} of the files {} is missing", names.back(), pattern));
    }
  }
  return names;
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  const std::unique_ptr<glob_t, void (*)(glob_t*)> owner(&found, ::globfree);
  if (result == GLOB_NOSPACE) throw std::bad_alloc();
  std::vector<std::string> names;
  for (const char* name : std::span(found.gl_pathv, result == 0 ? found.gl_pathc : 0)) {
    if (is_file(name)) names.emplace_back(name);
  }
  return names;
}

}  // namespace

std::string shard_name(const std::string& prefix, int shard, int shards) {
  return fmt::format("{}-{:05}-of-{:05}", prefix, shard, shards);
}

std::vector<std::string> expand_file_pattern(const std::string& pattern) {
  if (is_file(pattern)) return {pattern};
  if (const auto shards = shards_of(pattern)) return all_shards(pattern, *shards);
  std::vector<std::string> names = matches(pattern);
  if (names.empty()) not_found(fmt::format("no file matches {}", pattern));
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> expand_file_patterns(std::span<const std::string> patterns) {
  std::vector<std::string> names;
  for (const std::string& pattern : patterns) {
    const std::vector<std::string> some = expand_file_pattern(pattern);
    names.insert(names.end(), some.begin(), some.end());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace lockstep::format
