// Any text as Slurm's list of nodes and list of counts: few enough items, which written out one by
// one read as the same, or a ConfigError that names the variable.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cluster/slurm_lists.h"
#include "lockstep/error.h"

namespace {

template <class Expand>
void check(Expand expand, const std::string& text) {
  try {
    const auto items = expand({.name = "SLURM_LIST", .text = text});
    if (items.empty() || items.size() > 65'536) std::abort();
    const std::string again = fmt::format("{}", fmt::join(items, ","));
    if (expand({.name = "SLURM_LIST", .text = again}) != items) std::abort();
  } catch (const lockstep::ConfigError& e) {
    if (std::string(e.what()).rfind("SLURM_LIST, byte ", 0) != 0) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check(lockstep::cluster::expand_nodes, text);
  check(lockstep::cluster::expand_counts, text);
  return 0;
}
