#include "lockstep/collective_all_reduce_strategy.h"

#include <fmt/format.h>

#include "lockstep/cluster_roles.h"
#include "strategy/core.h"
#include "strategy/devices.h"

namespace lockstep {

/// What configure() was told.
struct CollectiveTask {
  ClusterSpec cluster;
  std::string type;
  int id = 0;

  friend bool operator==(const CollectiveTask&, const CollectiveTask&) = default;
};

namespace {

constexpr const char* kCollectiveName = "CollectiveAllReduceStrategy";

std::string name_of(const CollectiveTask& task) { return fmt::format("{} {}", task.type, task.id); }

CollectiveTask checked_task(const ClusterSpec& cluster, const std::optional<std::string>& type,
                            std::optional<int> id) {
  if (!type || !id) {
    throw InvalidUsage(
        fmt::format("{}::configure: a cluster is given but not the {}; say which of its tasks this "
                    "process is",
                    kCollectiveName, !type ? "task_type" : "task_id"));
  }
  if (*type != "chief" && *type != "worker") {
    throw InvalidUsage(
        fmt::format("{}::configure: task_type '{}' runs no replicas, only 'chief' "
                    "and 'worker' do; do not configure a strategy in other tasks",
                    kCollectiveName, *type));
  }
  try {
    validate_cluster_spec(cluster, *type, *id);
  } catch (const ConfigError& why) {
    throw ConfigError(fmt::format("{}::configure: {}", kCollectiveName, why.what()));
  }
  return {cluster, *type, *id};
}

SimpleClusterResolver resolver_of(const std::optional<CollectiveTask>& task) {
  if (!task) return SimpleClusterResolver(ClusterSpec());
  SimpleClusterOptions options;
  options.task_type = task->type;
  options.task_id = task->id;
  return SimpleClusterResolver(task->cluster, std::move(options));
}

DeviceList devices_of(int num_gpus, const MultiWorkerOptions& options) {
  if (num_gpus < 0) {
    throw InvalidUsage(
        fmt::format("{}: num_gpus_per_worker is {}; it is 0 or more", kCollectiveName, num_gpus));
  }
  if (num_gpus > 0 && !options.devices.empty()) {
    throw InvalidUsage(
        fmt::format("{}: num_gpus_per_worker is {} and devices are given; say one of them",
                    kCollectiveName, num_gpus));
  }
  DeviceList devices = options.devices;
  for (int i = 0; i < num_gpus; ++i) devices.emplace_back(fmt::format("GPU:{}", i));
  if (devices.empty()) devices = {"CPU:0"};
  return detail::checked_devices(kCollectiveName, std::move(devices),
                                 options.device_table.value_or(DeviceTable::machine()));
}

/// A group that was formed elsewhere has to be the one that configure() speaks of.
void check_session(const coll::Session& session, const CollectiveTask& task) {
  const int rank = id_in_cluster(task.cluster, task.type, task.id);
  const int size = worker_count(task.cluster, task.type);
  if (session.rank() == rank && session.size() == size) return;
  throw ConfigError(fmt::format(
      "{}: {} is worker {} of {} by configure(), but the session that was given is rank "
      "{} of {}",
      kCollectiveName, name_of(task), rank, size, session.rank(), session.size()));
}

}  // namespace

struct CollectiveAllReduceStrategy::Impl {
  MultiWorkerOptions options;
  std::optional<CollectiveTask> task;  // nothing: local
  std::unique_ptr<Strategy> strategy;  // with the first use
  bool left = false;
};

CollectiveAllReduceStrategy::CollectiveAllReduceStrategy(int num_gpus_per_worker,
                                                         MultiWorkerOptions options) {
  if (options.cluster_resolver) {
    throw InvalidUsage(fmt::format(
        "{}: configure() says who the workers are; MultiWorkerMirroredStrategy takes a resolver",
        kCollectiveName));
  }
  options.devices = devices_of(num_gpus_per_worker, options);
  impl_ = std::make_unique<Impl>();
  impl_->options = std::move(options);
}

CollectiveAllReduceStrategy::CollectiveAllReduceStrategy(std::unique_ptr<Impl> impl) noexcept
    : impl_(std::move(impl)) {}
CollectiveAllReduceStrategy::CollectiveAllReduceStrategy(CollectiveAllReduceStrategy&&) noexcept =
    default;
CollectiveAllReduceStrategy& CollectiveAllReduceStrategy::operator=(
    CollectiveAllReduceStrategy&&) noexcept = default;
CollectiveAllReduceStrategy::~CollectiveAllReduceStrategy() = default;

void CollectiveAllReduceStrategy::configure(NoSession, const ClusterSpec& cluster_spec,
                                            const std::optional<std::string>& task_type,
                                            std::optional<int> task_id) {
  if (!cluster_spec) return;
  const CollectiveTask task = checked_task(cluster_spec, task_type, task_id);
  if (impl_->task == task) return;
  if (impl_->task) {
    throw InvalidUsage(
        fmt::format("{}::configure: this is {} of {} already, and cannot become {} "
                    "of {}; make another strategy",
                    kCollectiveName, name_of(*impl_->task), to_string(impl_->task->cluster),
                    name_of(task), to_string(cluster_spec)),
        Code::failed_precondition);
  }
  if (impl_->strategy) {
    throw InvalidUsage(fmt::format("{}::configure: the strategy is in use as a local one; "
                                   "configure it before its first use",
                                   kCollectiveName),
                       Code::failed_precondition);
  }
  impl_->task = task;
}

ConfigProto CollectiveAllReduceStrategy::configure(const ConfigProto& session_config,
                                                   const ClusterSpec& cluster_spec,
                                                   const std::optional<std::string>& task_type,
                                                   std::optional<int> task_id) {
  configure(NoSession{}, cluster_spec, task_type, task_id);
  return update_config_proto(session_config);
}

Strategy& CollectiveAllReduceStrategy::strategy() const {
  if (impl_->strategy) return *impl_->strategy;
  if (impl_->left) {
    throw InvalidUsage(
        fmt::format("{}: it has left the cluster; experimental_initialize() joins anew",
                    kCollectiveName),
        Code::failed_precondition);
  }
  const MultiWorkerOptions& given = impl_->options;
  if (!impl_->task) {
    // Whatever the environment says: there is nobody to be found.
    impl_->strategy = std::make_unique<MirroredStrategy>(MirroredOptions{
        .devices = given.devices, .replicas = given.replicas, .device_table = given.device_table});
    return *impl_->strategy;
  }
  if (given.session && *given.session) check_session(*given.session, *impl_->task);
  MultiWorkerOptions options = given;
  options.cluster_resolver = resolver_of(impl_->task);
  impl_->strategy = std::make_unique<MultiWorkerMirroredStrategy>(options);
  return *impl_->strategy;
}

std::vector<coll::Work> CollectiveAllReduceStrategy::experimental_initialize() {
  if (!impl_->task || impl_->strategy) return {};
  if (impl_->left && impl_->options.session) {
    throw InvalidUsage(
        fmt::format("{}: the session that was given is used up; make another strategy",
                    kCollectiveName),
        Code::failed_precondition);
  }
  impl_->left = false;
  static_cast<void>(strategy());
  return {};
}

std::vector<coll::Work> CollectiveAllReduceStrategy::experimental_finalize() {
  if (!impl_->task || !impl_->strategy) return {};
  if (has_strategy() && &get_strategy() == impl_->strategy.get()) {
    throw InvalidUsage(fmt::format("{}::experimental_finalize: the strategy's scope has to end "
                                   "first",
                                   kCollectiveName),
                       Code::failed_precondition);
  }
  // Left even if the others cannot be waited for.
  const std::unique_ptr<Strategy> leaving = std::move(impl_->strategy);
  impl_->left = true;
  if (detail::Workers* workers = leaving->core().workers()) {
    const detail::Verb verb("experimental_finalize", Here{});
    workers->barrier({});
  }
  return {};
}

int CollectiveAllReduceStrategy::num_replicas_in_sync() const noexcept {
  const auto local = static_cast<int>(impl_->options.devices.size());
  return impl_->task ? local * worker_count(impl_->task->cluster, impl_->task->type) : local;
}

bool CollectiveAllReduceStrategy::should_checkpoint() const {
  return !impl_->task || is_chief(impl_->task->cluster, impl_->task->type, impl_->task->id);
}

ConfigProto CollectiveAllReduceStrategy::update_config_proto(
    const ConfigProto& config_proto) const {
  return lockstep::update_config_proto(config_proto, resolver_of(impl_->task),
                                       impl_->options.communication);
}

CollectiveAllReduceStrategy CollectiveAllReduceStrategy::clone() const {
  if (impl_->options.session && !impl_->task) {
    throw InvalidUsage(fmt::format("{}::clone: a session was given, and two cannot join with it; "
                                   "configure the strategy first",
                                   kCollectiveName),
                       Code::failed_precondition);
  }
  auto copy = std::make_unique<Impl>();
  copy->options = impl_->options;
  copy->task = impl_->task;
  if (impl_->task) copy->strategy = strategy().clone();
  return CollectiveAllReduceStrategy(std::move(copy));
}

ConfigProto update_config_proto(const ConfigProto& config, const ClusterResolver& resolver,
                                Communication communication) {
  ConfigProto updated = config;
  updated.scoped_allocator_optimization = true;
  updated.scoped_allocator_enable_op = {"CollectiveReduce"};
  if (communication == Communication::nccl) updated.collective_nccl = true;
  const ClusterSpec cluster = resolver.cluster_spec();
  if (!cluster) return updated;
  const std::optional<std::string> type = resolver.task_type();
  const std::optional<int> id = resolver.task_id();
  if (!type || !id) {
    throw ConfigError(
        fmt::format("update_config_proto: {} has a cluster but not the task's {}; say which task "
                    "this is",
                    resolver.source(), !type ? "type" : "index"));
  }
  if (!cluster.has_job("chief") && !cluster.has_job("worker")) {
    throw ConfigError(
        fmt::format("update_config_proto: {} has neither chief nor workers, so nobody leads: {}",
                    resolver.source(), to_string(cluster)));
  }
  updated.collective_group_leader = collective_leader(cluster, *type, *id);
  updated.device_filters = {fmt::format("/job:{}/task:{}", *type, *id)};
  return updated;
}

namespace compat::v1 {

namespace {

MultiWorkerOptions options_of(Communication communication,
                              std::optional<AnyClusterResolver> cluster_resolver) {
  MultiWorkerOptions options;
  options.communication = communication;
  options.cluster_resolver = std::move(cluster_resolver);
  return options;
}

}  // namespace

const lockstep::MultiWorkerMirroredStrategy* Strategy::multi_worker() const noexcept {
  return dynamic_cast<const lockstep::MultiWorkerMirroredStrategy*>(strategy_);
}

const ClusterResolver* Strategy::cluster_resolver() const noexcept {
  const auto* workers = multi_worker();
  return workers != nullptr ? &workers->cluster_resolver() : nullptr;
}

ConfigProto Strategy::update_config_proto(const ConfigProto& config_proto) const {
  const auto* workers = multi_worker();
  if (workers == nullptr) return config_proto;
  return lockstep::update_config_proto(config_proto, workers->cluster_resolver(),
                                       workers->communication());
}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(
    Communication communication, std::optional<AnyClusterResolver> cluster_resolver)
    : OwnedStrategy(options_of(communication, std::move(cluster_resolver))), Strategy(owned) {}

}  // namespace compat::v1

}  // namespace lockstep
