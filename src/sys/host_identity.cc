#include "sys/host_identity.h"

#include <fmt/format.h>
#include <unistd.h>

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

}  // namespace lockstep::sys
