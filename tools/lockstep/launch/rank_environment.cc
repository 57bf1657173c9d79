#include "launch/rank_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

namespace lockstep::tool {
namespace {

std::string tf_config(const ClusterSettings& cluster, int rank) {
  const nlohmann::ordered_json config = {{"cluster", {{"worker", cluster.tf_workers}}},
                                         {"task", {{"type", "worker"}, {"index", rank}}}};
  return config.dump();
}

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

}  // namespace

std::string failure_file(const ClusterSettings& cluster, int rank) {
  return fmt::format("{}/failure-{}", cluster.failure_dir, rank);
}

std::vector<std::string> rank_environment(const std::vector<std::string>& own,
                                          const ClusterSettings& cluster, int local_rank) {
  const int rank = cluster.placement.first_rank() + local_rank;
  std::vector<std::pair<std::string, std::string>> ours = {
      {"LOCKSTEP_RANK", std::to_string(rank)},
      {"LOCKSTEP_SIZE", std::to_string(cluster.placement.size())},
      {"LOCKSTEP_LOCAL_RANK", std::to_string(local_rank)},
      {"LOCKSTEP_LOCAL_SIZE", std::to_string(cluster.placement.local_size())},
      {"LOCKSTEP_ADDRESSES", fmt::format("{}", fmt::join(cluster.addresses, ","))},
      {"LOCKSTEP_GENERATION_HINT", std::to_string(cluster.restarts)},
      {"LOCKSTEP_LAUNCHER_PID", std::to_string(cluster.launcher_pid)},
      {"LOCKSTEP_FAILURE_FILE", failure_file(cluster, rank)},
      {"TF_CONFIG", tf_config(cluster, rank)}};
  std::set<std::string, std::less<>> replaced;
  if (!cluster.bind.empty()) ours.emplace_back("LOCKSTEP_BIND", cluster.bind);
  if (!cluster.key_file.empty()) {
    ours.emplace_back("LOCKSTEP_KEY_FILE", cluster.key_file);
    replaced.insert("LOCKSTEP_KEY");  // one key only
  }
  if (cluster.insecure) ours.emplace_back("LOCKSTEP_INSECURE", "1");
  if (cluster.plaintext_data) ours.emplace_back("LOCKSTEP_PLAINTEXT_DATA", "1");
  if (!cluster.history_dir.empty()) ours.emplace_back("LOCKSTEP_HISTORY_DIR", cluster.history_dir);
  for (const auto& [name, value] : ours) replaced.insert(name);

  std::vector<std::string> all;
  for (const std::string& entry : own) {
    if (replaced.find(name_of(entry)) == replaced.end()) all.push_back(entry);
  }
  for (const auto& [name, value] : ours) all.push_back(fmt::format("{}={}", name, value));
  return all;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  return all;
}

}  // namespace lockstep::tool
