#include "lockstep/multi_worker_mirrored_strategy.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include "base/env.h"
#include "base/log.h"
#include "coll/engines.h"
#include "lockstep/cluster_roles.h"
#include "lockstep/collective_all_reduce.h"
#include "lockstep/resolve_cluster.h"
#include "strategy/core.h"
#include "strategy/devices.h"
#include "tensor/blas.h"

namespace lockstep {

using detail::CoreOptions;
using detail::StrategyCore;
using detail::Workers;

namespace {

constexpr const char* kMultiWorkerName = "MultiWorkerMirroredStrategy";

/// Which instructions libtorch uses here: "AVX2". Asked once: libtorch's answer is not made for
/// several threads at a time.
const std::string& cpu_capability() {
  static const std::string capability = []() -> std::string {
    constexpr std::string_view kLabel = "CPU capability usage: ";
    const std::string config = at::show_config();
    const std::size_t found = config.find(kLabel);
    if (found == std::string::npos) return "unknown instructions";
    const std::size_t begin = found + kLabel.size();
    return config.substr(begin, config.find('\n', begin) - begin);
  }();
  return capability;
}

/// Everything the bits of a step depend on besides the program, in a job of several workers.
std::string arithmetic(const ReplicaOptions& replicas) {
  return fmt::format("libtorch {}, {}, {}, {} threads a replica", TORCH_VERSION,
                     tensor::Blas::in_use().describe(), cpu_capability(),
                     replicas.threads_per_replica.value_or(1));
}

coll::Engine engine_of(Communication communication) {
  if (communication == Communication::mpi) return coll::Engine::mpi;
  if (communication == Communication::nccl) return coll::Engine::nccl;
  return coll::Engine::automatic;
}

coll::Engine engine_for(const MultiWorkerOptions& options) {
  return options.communication == Communication::automatic ? environment().engine
                                                           : engine_of(options.communication);
}

/// An engine that is linked knows the ranks itself: nobody need say who and where they are.
bool knows_the_ranks(coll::Engine engine) { return coll::engine_of(engine) != nullptr; }

/// Who takes part, as the resolver says; nothing: this process is alone.
std::optional<coll::JoinOptions> cluster_of(const MultiWorkerOptions& options,
                                            const ClusterResolver& resolver) {
  const std::string type = resolver.task_type().value_or("");
  const ClusterSpec cluster = resolver.cluster_spec();
  if (options.cluster_resolver && !cluster) return {};  // said to be alone
  if (type == "evaluator") {                            // works beside the others, by itself
    const std::optional<int> id = resolver.task_id();
    if (cluster && id) validate_cluster_spec(cluster, type, *id);
    return {};
  }
  if (cluster && type == "ps") {
    throw ConfigError(fmt::format(
        "{}: {} says that this task is a parameter server (ps), which runs no replicas. Branch on "
        "the resolver's task_type() first, and make a strategy in chief and worker tasks only",
        kMultiWorkerName, resolver.source()));
  }
  coll::JoinOptions join;
  const coll::Engine engine = engine_for(options);
  if (!knows_the_ranks(engine)) {
    join = coll::join_options_for(resolver);
    if (join.addresses.size() <= 1 && engine != coll::Engine::mpi) return {};
  }
  join.options.engine = engine;
  return join;
}

/// Those given; else as many GPUs as the resolver says a task has, or the CPU. Empty: whatever is
/// here. TF_CONFIG does not say, and launchers' variables need not, nor does libtorch need to see
/// the GPUs they speak of.
DeviceList devices_of(const MultiWorkerOptions& options, const ClusterResolver& resolver,
                      const DeviceTable& table) {
  if (!options.devices.empty()) return options.devices;
  const std::map<std::string, int> told = resolver.num_accelerators();
  const auto gpus = told.find("GPU");
  const bool of_environment =
      !options.cluster_resolver || dynamic_cast<const TfConfigResolver*>(&resolver) != nullptr;
  if (of_environment && (gpus == told.end() || gpus->second > table.gpus)) return {};
  DeviceList devices;
  for (int i = 0; gpus != told.end() && i < gpus->second; ++i) {
    devices.emplace_back(fmt::format("GPU:{}", i));
  }
  if (devices.empty()) devices.emplace_back("CPU:0");
  return devices;
}

/// A cluster that was described has to be the one that the engine has found.
void require_same_task(const coll::Session& session, const ClusterResolver& resolver) {
  const ClusterSpec cluster = resolver.cluster_spec();
  const std::optional<std::string> type = resolver.task_type();
  const std::optional<int> id = resolver.task_id();
  if (!cluster || !type || !id) return;
  const int rank = id_in_cluster(cluster, *type, *id);
  const int size = worker_count(cluster, *type);
  if (session.rank() == rank && session.size() == size) return;
  throw ConfigError(fmt::format("{}: by {} this is worker {} of {}, but rank {} of {} by {}",
                                kMultiWorkerName, resolver.source(), rank, size, session.rank(),
                                session.size(), session.transport()));
}

std::shared_ptr<coll::Session> session_of(const MultiWorkerOptions& options,
                                          const ClusterResolver& resolver, int local) {
  if (options.session && !*options.session) {
    throw InvalidUsage(
        fmt::format("{}: the session in the options belongs to a strategy that was made with them "
                    "before; give each its own",
                    kMultiWorkerName),
        Code::failed_precondition);
  }
  if (options.session) return options.session;
  std::optional<coll::JoinOptions> join = cluster_of(options, resolver);
  if (!join) return nullptr;
  join->options.replicas = local;
  join->timeout = options.join_timeout;
  join->liveness = options.liveness;
  join->arithmetic = arithmetic(options.replicas);
  join->require_same_bits = options.require_same_bits;
  const bool by_engine = knows_the_ranks(join->options.engine);
  if (by_engine && options.require_same_bits) {
    throw Unsupported(fmt::format(
        "{}: require_same_bits: an engine joins without comparing the workers' arithmetic, and has "
        "an order of additions of its own",
        kMultiWorkerName));
  }
  auto session = std::make_shared<coll::Session>(coll::join(*join));
  if (by_engine) require_same_task(*session, resolver);
  log_info("{}: worker {} of {} with {} replicas each, over {}", kMultiWorkerName, session->rank(),
           session->size(), local, session->transport());
  return session;
}

/// The ops own the session, the workers a reference to it: both live as long as the core.
struct SharedWorkers {
  SharedWorkers(std::shared_ptr<CollectiveAllReduce> its_ops, std::chrono::nanoseconds timeout)
      : ops(std::move(its_ops)), workers(ops->session(), timeout) {}
  std::shared_ptr<CollectiveAllReduce> ops;
  Workers workers;
};

std::shared_ptr<StrategyCore> multi_worker_core(const MultiWorkerOptions& options,
                                                const ClusterResolver& resolver) {
  CoreOptions core;
  core.name = kMultiWorkerName;
  core.device_table = options.device_table ? *options.device_table : DeviceTable::machine();
  core.worker_devices = detail::checked_devices(
      kMultiWorkerName, devices_of(options, resolver, core.device_table), core.device_table);
  core.parameter_devices = core.worker_devices;
  core.replicas = options.replicas;
  const auto local = static_cast<int>(core.worker_devices.size());
  const std::shared_ptr<coll::Session> session = session_of(options, resolver, local);
  if (session == nullptr || session->size() == 1) {
    return std::make_shared<StrategyCore>(std::move(core));
  }
  Workers::require_equal_numbers(*session, local);
  const CommunicationOptions communication{options.bytes_per_pack, options.timeout_seconds};
  const std::chrono::duration<double> timeout(options.timeout_seconds.value().value_or(0));
  auto shared = std::make_shared<SharedWorkers>(
      std::make_shared<CollectiveAllReduce>(std::move(*session), core.worker_devices,
                                            communication),
      std::chrono::duration_cast<std::chrono::nanoseconds>(timeout));
  core.cross_device_ops = shared->ops;
  core.workers = std::shared_ptr<Workers>(shared, &shared->workers);
  // One seed for all, so that a replica's numbers do not depend on where it runs.
  const std::uint64_t own =
      options.replicas.seed.value_or(at::detail::getDefaultCPUGenerator().current_seed());
  const std::uint64_t seed = [&] {
    const detail::Verb verb(kMultiWorkerName, Here{});
    return core.workers->from_chief(own, "seed");
  }();
  if (options.replicas.seed && *options.replicas.seed != seed) {
    log_warning(
        "{}: worker {} was given the seed {}, the chief has {}: the chief's counts. Give all "
        "workers the same replicas.seed",
        kMultiWorkerName, core.workers->index(), own, seed);
  }
  core.replicas.seed = seed;
  return std::make_shared<StrategyCore>(std::move(core));
}

AnyClusterResolver resolver_of(const MultiWorkerOptions& options) {
  // A group that exists, or that an engine forms, needs no description of it.
  if (!options.cluster_resolver && (options.session || knows_the_ranks(engine_for(options)))) {
    return TfConfigResolver();
  }
  return resolve_cluster(options.cluster_resolver).resolver;
}

}  // namespace

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(const MultiWorkerOptions& options)
    : MultiWorkerMirroredStrategy(options, resolver_of(options)) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(const MultiWorkerOptions& options,
                                                         AnyClusterResolver resolver)
    : Strategy(multi_worker_core(options, *resolver)),
      resolver_(std::move(resolver)),
      communication_(options.communication) {}

int MultiWorkerMirroredStrategy::num_workers() const noexcept {
  return core().workers() != nullptr ? core().workers()->count() : 1;
}

int MultiWorkerMirroredStrategy::worker_index() const noexcept {
  return core().workers() != nullptr ? core().workers()->index() : 0;
}

std::string MultiWorkerMirroredStrategy::transport() const {
  return core().workers() != nullptr ? core().workers()->session().transport() : "local";
}

}  // namespace lockstep
