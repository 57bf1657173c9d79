#include "sys/host_identity.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "sys/cgroup.h"

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

bool same_host_name(std::string_view one, std::string_view other) {
  const auto small = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const auto first_label = [](std::string_view name) { return name.substr(0, name.find('.')); };
  const bool both_have_domains =
      first_label(one).size() < one.size() && first_label(other).size() < other.size();
  if (!both_have_domains) {
    one = first_label(one);
    other = first_label(other);
  }
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [&](char a, char b) { return small(a) == small(b); });
}

}  // namespace lockstep::sys
