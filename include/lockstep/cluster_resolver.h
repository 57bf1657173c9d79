// ClusterResolver: finds out which tasks there are and which of them this process is.
//
//   TfConfigResolver resolver;                 // the environment variable TF_CONFIG
//   ClusterSpec cluster = resolver.cluster_spec();
//   resolver.task_type();                      // "worker"
//   resolver.task_id();                        // 1
//
// Resolvers of launchers (Slurm, Open MPI, torchrun) are in launcher_resolvers.h, that of pods in
// kubernetes_resolver.h; resolve_cluster.h says which counts. What cannot be understood is a
// ConfigError that names the variable, the byte, what stands there and what to do.
// Reading is free of threads; setters are not, like those of any value.
#pragma once

#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cluster_spec.h"

namespace lockstep {

/// The value of an environment variable, if it is set. Tests give their own.
using EnvironmentView = std::function<std::optional<std::string>(const std::string& name)>;

/// The variables of this process, read anew at each call.
EnvironmentView process_environment();

/// What a user says about the task instead of what a resolver would find.
struct TaskOptions {
  std::optional<std::string> task_type = {};
  std::optional<int> task_id = {};
  std::optional<std::string> rpc_layer = {};
};

class ClusterResolver {
 public:
  virtual ~ClusterResolver() = default;

  /// Empty: there is no cluster, this process is alone.
  [[nodiscard]] virtual ClusterSpec cluster_spec() const = 0;
  /// Where the facts come from, for messages: "TF_CONFIG", "Slurm".
  [[nodiscard]] virtual std::string source() const = 0;

  // What was set, else what the resolver finds; nullopt if it cannot know.

  [[nodiscard]] std::optional<std::string> task_type() const;
  [[nodiscard]] std::optional<int> task_id() const;
  [[nodiscard]] std::optional<std::string> rpc_layer() const;
  void set_task_type(std::string type) { given_.task_type = std::move(type); }
  void set_task_id(int id) { given_.task_id = id; }
  void set_rpc_layer(std::string layer) { given_.rpc_layer = std::move(layer); }

  /// The address of a task (default: this one), with "layer://" before it if there is an rpc layer;
  /// empty if the task is not known.
  [[nodiscard]] virtual std::string master(const TaskOptions& task = {}) const;
  /// Of one task: {"GPU", 2}. Empty if the resolver cannot know.
  [[nodiscard]] virtual std::map<std::string, int> num_accelerators() const { return {}; }
  [[nodiscard]] virtual std::string environment() const { return {}; }
  /// A name under which all tasks find each other if they are known to be on one host; else empty.
  [[nodiscard]] virtual std::string meeting() const { return {}; }

 protected:
  explicit ClusterResolver(TaskOptions given = {}) : given_(std::move(given)) {}
  ClusterResolver(const ClusterResolver&) = default;
  ClusterResolver& operator=(const ClusterResolver&) = default;

  [[nodiscard]] virtual std::optional<std::string> find_task_type() const { return {}; }
  [[nodiscard]] virtual std::optional<int> find_task_id() const { return {}; }
  [[nodiscard]] virtual std::optional<std::string> find_rpc_layer() const { return {}; }

 private:
  TaskOptions given_;
};

/// A resolver of any class, kept by value: what options take. Copies share it.
class AnyClusterResolver {
 public:
  template <std::derived_from<ClusterResolver> Resolver>
  AnyClusterResolver(Resolver resolver)
      : resolver_(std::make_shared<Resolver>(std::move(resolver))) {}
  /// InvalidUsage for null.
  AnyClusterResolver(std::shared_ptr<const ClusterResolver> resolver);

  const ClusterResolver& operator*() const noexcept { return *resolver_; }
  const ClusterResolver* operator->() const noexcept { return resolver_.get(); }

 private:
  std::shared_ptr<const ClusterResolver> resolver_;
};

struct SimpleClusterOptions {
  std::string master = {};
  std::optional<std::string> task_type = {};
  std::optional<int> task_id = {};
  std::string environment = {};
  std::map<std::string, int> num_accelerators = {};
  std::optional<std::string> rpc_layer = {};
};

/// What the constructor says.
class SimpleClusterResolver final : public ClusterResolver {
 public:
  explicit SimpleClusterResolver(ClusterSpec cluster, SimpleClusterOptions options = {});

  [[nodiscard]] ClusterSpec cluster_spec() const override { return cluster_; }
  [[nodiscard]] std::string source() const override { return "SimpleClusterResolver"; }
  /// The master given, unless a type and an id are asked for.
  [[nodiscard]] std::string master(const TaskOptions& task = {}) const override;
  [[nodiscard]] std::map<std::string, int> num_accelerators() const override;
  [[nodiscard]] std::string environment() const override { return options_.environment; }

 private:
  ClusterSpec cluster_;
  SimpleClusterOptions options_;
};

/// The JSON text in TF_CONFIG, read anew at each call; not set or "{}" is no cluster. Its keys:
/// cluster, task.type, task.index, rpc_layer, session_master; others are left alone.
class TfConfigResolver final : public ClusterResolver {
 public:
  explicit TfConfigResolver(TaskOptions options = {},
                            EnvironmentView variables = process_environment());

  [[nodiscard]] ClusterSpec cluster_spec() const override;
  [[nodiscard]] std::string source() const override { return "TF_CONFIG"; }
  /// session_master if there is one; empty for a cluster of at most one task.
  [[nodiscard]] std::string master(const TaskOptions& task = {}) const override;

 private:
  [[nodiscard]] std::optional<std::string> find_task_type() const override;
  [[nodiscard]] std::optional<int> find_task_id() const override;
  [[nodiscard]] std::optional<std::string> find_rpc_layer() const override;

  EnvironmentView variables_;
};

/// Several resolvers as one: their jobs together, the rest from the first. The lists of a job are
/// joined; if one of them has gaps they are merged by index, and an index that comes twice is
/// InvalidUsage. A task_id of 0 in the options counts as not given, as in TensorFlow.
class UnionResolver final : public ClusterResolver {
 public:
  /// InvalidUsage without a resolver.
  explicit UnionResolver(std::vector<AnyClusterResolver> resolvers, TaskOptions options = {});

  [[nodiscard]] ClusterSpec cluster_spec() const override;
  [[nodiscard]] std::string source() const override;
  /// The first resolver's, unless a type and an id are asked for.
  [[nodiscard]] std::string master(const TaskOptions& task = {}) const override;
  [[nodiscard]] std::map<std::string, int> num_accelerators() const override;
  [[nodiscard]] std::string environment() const override;

 private:
  [[nodiscard]] std::optional<std::string> find_task_type() const override;
  [[nodiscard]] std::optional<int> find_task_id() const override;
  [[nodiscard]] std::optional<std::string> find_rpc_layer() const override;

  std::vector<AnyClusterResolver> resolvers_;
};

}  // namespace lockstep
