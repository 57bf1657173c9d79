#include "lockstep/kubernetes_resolver.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cluster/addresses.h"
#include "cluster/label_selector.h"
#include "cluster/pods.h"
#include "cluster/text.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using cluster::Pod;
using cluster::Variable;

constexpr const char* kName = "pod list";  // of one that is no file

void check_size(const std::string& name, std::uintmax_t bytes) {
  if (bytes <= PodList::kMaxBytes) return;
  throw ConfigError(
      fmt::format("{} has more than {} bytes; list the pods of one job only: kubectl get pods -l "
                  "job-name=train -o json",
                  name, PodList::kMaxBytes));
}

/// Regular files only: another kind could be waited for without end.
std::string text_of_file(const std::string& path) {
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(path, error);
  if (!is_file) {
    throw ConfigError(
        fmt::format("the pod list {} {}; write one with kubectl get pods -o json", path,
                    error ? "cannot be read: " + error.message() : "is not a regular file"));
  }
  check_size(path, std::filesystem::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  std::string text(PodList::kMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.eof() && !file) throw ConfigError(fmt::format("the pod list {} cannot be read", path));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

/// "10.0.0.1:8470" of a pod that runs; ConfigError for any other.
std::string address_of(const Variable& list, const Pod& pod, const KubernetesOptions& options) {
  if (pod.phase != "Running") {
    cluster::refuse(list, pod.offset,
                    fmt::format("pod {} is not Running: \"{}.status.phase\" is {}",
                                cluster::printable(pod.name), pod.path,
                                pod.phase.empty() ? "missing" : cluster::printable(pod.phase)),
                    "wait until all pods of the job run");
  }
  const bool of_host = options.address == PodAddress::host;
  const std::string& ip = of_host ? pod.host_ip : pod.pod_ip;
  const std::string key = fmt::format("\"{}.status.{}\"", pod.path, of_host ? "hostIP" : "podIP");
  std::string address = ip.find(':') == std::string::npos
                            ? fmt::format("{}:{}", ip, options.port)
                            : fmt::format("[{}]:{}", ip, options.port);
  const std::string problem = ip.empty() ? "it is missing" : cluster::address_problem(address);
  if (!problem.empty()) {
    cluster::refuse(list, pod.offset,
                    fmt::format("pod {}, {}: {}", cluster::printable(pod.name), key, problem),
                    "give what `kubectl get pods -o json` prints");
  }
  return address;
}

}  // namespace

PodList PodList::in_file(std::string path) {
  auto read = [path] { return text_of_file(path); };
  return {std::move(path), std::move(read)};
}

PodList PodList::of_text(std::string text) {
  check_size(kName, text.size());
  return from([text = std::move(text)] { return text; });
}

PodList PodList::from(std::function<std::string()> fetch) {
  if (!fetch) throw InvalidUsage("PodList::from needs a function");
  return {kName, std::move(fetch)};
}

std::string PodList::text() const {
  std::string text = fetch_();
  check_size(name_, text.size());
  return text;
}

KubernetesResolver::KubernetesResolver(PodList pods, KubernetesOptions options)
    : ClusterResolver(options.task), pods_(std::move(pods)), options_(std::move(options)) {
  if (options_.port < 1 || options_.port > 65535) {
    throw InvalidUsage(
        fmt::format("KubernetesOptions::port is {}; a port is 1 to 65535", options_.port));
  }
  if (options_.jobs.empty()) options_.jobs = {{"worker", {"job-name=tensorflow"}}};
  for (const auto& [job, selectors] : options_.jobs) {
    for (const std::string& selector : selectors) cluster::LabelSelector::parse(selector);
  }
}

ClusterSpec KubernetesResolver::cluster_spec() const {
  const Variable list{.name = pods_.name(), .text = pods_.text()};
  std::vector<Pod> pods = cluster::parse_pods(list);
  // The API promises no order, and all tasks must see the same.
  std::stable_sort(pods.begin(), pods.end(),
                   [](const Pod& a, const Pod& b) { return a.name < b.name; });
  std::map<std::string, JobTasks> jobs;
  std::vector<cluster::Entry> entries;
  for (const auto& [job, selectors] : options_.jobs) {
    std::vector<std::string> addresses;
    for (const std::string& text : selectors) {
      const auto selector = cluster::LabelSelector::parse(text);
      for (const Pod& pod : pods) {
        if (!selector.selects(pod.labels)) continue;
        entries.push_back({.name = fmt::format("{} {} (pod {})", job, addresses.size(),
                                               cluster::printable(pod.name)),
                           .address = address_of(list, pod, options_)});
        addresses.push_back(entries.back().address);
      }
    }
    jobs.emplace(job, addresses);
  }
  cluster::check_together(list.name, entries);
  return ClusterSpec(std::move(jobs));
}

}  // namespace lockstep
