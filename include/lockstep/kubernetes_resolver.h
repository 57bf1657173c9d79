// KubernetesResolver: the tasks of a cluster are pods, found by their labels.
//
//   KubernetesResolver resolver(PodList::in_file("/run/pods.json"),
//                               {.jobs = {{"worker", {"job-name=train"}}},
//                                .task = {.task_type = "worker", .task_id = 1}});
//
// lockstep does not call Kubernetes itself: give it the answer of its API, a PodList in JSON, as
// `kubectl get pods -o json` prints it. Which of the pods this process is cannot be seen there: set
// the task, or it is not known. Reading is free of threads, as far as the PodList's function is.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cluster_resolver.h"

namespace lockstep {

/// Where the list of pods comes from. It is read anew each time a cluster is asked for.
class PodList {
 public:
  /// A longer text is a ConfigError, when it is given or read.
  static constexpr std::size_t kMaxBytes = 16'777'216;

  /// A regular file; ConfigError if it cannot be read.
  static PodList in_file(std::string path);
  static PodList of_text(std::string text);
  /// A function that returns the text. What it throws reaches whoever asks for the cluster.
  static PodList from(std::function<std::string()> fetch);

  /// For messages: the file, or "pod list".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::string text() const;

 private:
  PodList(std::string name, std::function<std::string()> fetch)
      : name_(std::move(name)), fetch_(std::move(fetch)) {}

  std::string name_;
  std::function<std::string()> fetch_;
};

/// Which of a pod's addresses its task listens at.
enum class PodAddress {
  host,  // status.hostIP, as in TensorFlow: pods with the network of their host, one on each
  pod,   // status.podIP
};

struct KubernetesOptions {
  /// The label selectors of each job, as kubectl takes them: "app=train,tier!=web", "app in (a,b)",
  /// "gpu", "!gpu"; "" selects every pod. Default: {"worker", {"job-name=tensorflow"}}.
  std::map<std::string, std::vector<std::string>> jobs = {};
  int port = 8470;
  PodAddress address = PodAddress::host;
  TaskOptions task = {};
};

/// The pods that a job's first selector selects, sorted by name, are its first tasks, then come
/// those of the next. ConfigError if one of them is not Running, naming it and its phase.
class KubernetesResolver final : public ClusterResolver {
 public:
  /// ConfigError for a selector that is none, InvalidUsage for a port that is none.
  explicit KubernetesResolver(PodList pods, KubernetesOptions options = {});

  [[nodiscard]] ClusterSpec cluster_spec() const override;
  [[nodiscard]] std::string source() const override { return "Kubernetes"; }

 private:
  PodList pods_;
  KubernetesOptions options_;
};

}  // namespace lockstep
