// Any text as TF_CONFIG: a cluster that written down again reads as the same, or a ConfigError that
// names the variable. What it says about the task leads to a placement or a ConfigError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "cluster/placement.h"
#include "cluster/tf_config.h"
#include "lockstep/error.h"
#include "lockstep/log.h"

namespace {

using namespace lockstep;

std::string written(const ClusterSpec& spec) {
  nlohmann::json cluster = nlohmann::json::object();
  for (const auto& [job, tasks] : spec.as_dict()) {
    if (const auto* list = std::get_if<std::vector<std::string>>(&tasks)) {
      cluster[job] = *list;
      continue;
    }
    cluster[job] = nlohmann::json::object();
    for (const auto& [index, address] : std::get<std::map<int, std::string>>(tasks)) {
      cluster[job][std::to_string(index)] = address;
    }
  }
  return nlohmann::json{{"cluster", cluster}}.dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  set_log_level(LogLevel::off);
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const cluster::TfConfig config = cluster::parse_tf_config(text);
    if (cluster::parse_tf_config(written(config.cluster)).cluster != config.cluster) std::abort();
  } catch (const ConfigError& e) {
    if (std::string(e.what()).rfind("TF_CONFIG", 0) != 0) std::abort();
  }
  try {
    const auto placement = cluster::from_environment([&text](const std::string& name) {
      return name == "TF_CONFIG" ? std::optional(text) : std::nullopt;
    });
    if (placement.rank < 0 || placement.rank >= placement.size()) std::abort();
  } catch (const ConfigError&) {  // NOLINT(bugprone-empty-catch): the other right answer
  }
  return 0;
}
