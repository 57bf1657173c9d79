#include "doctor/secret.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <optional>

#include "base/status.h"
#include "lockstep/cluster_resolver.h"
#include "sys/private_file.h"

namespace lockstep::tool {
namespace {

constexpr std::size_t kMostBytes = 1024;

bool is_on(const std::optional<std::string>& value) {
  return value && !value->empty() && *value != "0";
}

Finding check_file(const std::string& path, const std::string& suffix) {
  try {
    std::array<std::byte, kMostBytes> content{};
    const std::size_t bytes = sys::read_private_file(path, content);
    content.fill(std::byte{0});
    if (bytes == 0)
      return {Verdict::problem, "key", fmt::format("{} is empty", path), "make a key"};
    return {Verdict::ok, "key", fmt::format("a key in {}, which is private{}", path, suffix), ""};
  } catch (const Error& error) {
    return {Verdict::problem, "key", error.what(), "every host needs its own private copy"};
  }
}

}  // namespace

Finding check_key(Spread spread) {
  const EnvironmentView variables = process_environment();
  const auto key = variables("LOCKSTEP_KEY");
  const auto file = variables("LOCKSTEP_KEY_FILE");
  const std::string suffix = is_on(variables("LOCKSTEP_PLAINTEXT_DATA"))
                                 ? "; data travels unencrypted (LOCKSTEP_PLAINTEXT_DATA)"
                                 : "";
  if (key && !key->empty()) return {Verdict::ok, "key", "a key in LOCKSTEP_KEY" + suffix, ""};
  if (file && !file->empty()) return check_file(*file, suffix);
  if (spread == Spread::one_host)
    return {Verdict::ok, "key", "none, and none needed: one host", ""};
  if (is_on(variables("LOCKSTEP_INSECURE"))) {
    return {Verdict::warning, "key", "none (LOCKSTEP_INSECURE): whoever reaches the ports can join",
            "make a key: see docs/security.md"};
  }
  return {Verdict::problem, "key", "none, but ranks of several hosts need one",
          "make one (docs/security.md), copy it to every host and set LOCKSTEP_KEY_FILE"};
}

}  // namespace lockstep::tool
