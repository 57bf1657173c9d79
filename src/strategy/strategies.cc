// The strategies: which devices, which placement. Everything else is StrategyCore.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>

#include "base/log.h"
#include "cluster/cluster_sources.h"
#include "coll/generation.h"
#include "lockstep/central_storage_strategy.h"
#include "lockstep/mirrored_strategy.h"
#include "lockstep/one_device_strategy.h"
#include "strategy/core.h"
#include "strategy/devices.h"
#include "sys/topology.h"

namespace lockstep {

using detail::CoreOptions;
using detail::Placement;
using detail::StrategyCore;

namespace detail {

DeviceList checked_devices(const char* strategy, DeviceList devices, const DeviceTable& table) {
  if (devices.empty()) devices = table.default_devices();
  table.check(devices);
  std::set<Device> seen;
  for (const Device& device : devices) {
    if (!seen.insert(device).second) {
      throw InvalidUsage(
          fmt::format("{}: device {} is given twice; each replica needs a device of its own",
                      strategy, device.str()));
    }
  }
  return devices;
}

}  // namespace detail

using detail::checked_devices;

namespace {

DeviceTable table_of(const std::optional<DeviceTable>& given) {
  return given ? *given : DeviceTable::machine();
}

/// Whether a source leaves the description to a later one, which knows more.
bool is_left_to_another(const cluster::ClusterSource& source) {
  try {
    return source.resolver(process_environment()) == nullptr;
  } catch (const ConfigError&) {  // join() says what is wrong
    return false;
  }
}

/// What the environment says of this process; nullopt if it describes no ranks, or is wrong.
std::optional<cluster::Claim> claim_of_environment() {
  for (const cluster::ClusterSource& source : cluster::cluster_sources()) {
    try {
      auto claim = source.claim(process_environment());
      if (claim && !is_left_to_another(source)) return claim;
    } catch (const ConfigError&) {  // a task that is no rank
    }
  }
  return std::nullopt;
}

/// Of the processes that a launcher starts, or that TF_CONFIG describes, each trains by itself,
/// unless it joins the others: said once, by the first of them.
void warn_if_one_of_several(const std::string& strategy) {
  static std::atomic<bool> said = false;
  if (coll::last_generation.load() > 0 || said.load()) return;
  const auto claim = claim_of_environment();
  if (!claim || claim->size < 2 || claim->rank != 0 || said.exchange(true)) return;
  log_warning(
      "{}: by {} this process is rank 0 of {}, and each trains alone: the same model {} times, "
      "into "
      "the same files. MultiWorkerMirroredStrategy trains one model in all of them",
      strategy, claim->source, claim->size, claim->size);
}

/// A strategy that is nothing but its core: the default one, and clones.
class PlainStrategy : public Strategy {
 public:
  explicit PlainStrategy(CoreOptions options)
      : Strategy(std::make_shared<StrategyCore>(std::move(options))) {}
};

std::shared_ptr<StrategyCore> mirrored_core(MirroredOptions options) {
  CoreOptions core;
  core.name = "MirroredStrategy";
  warn_if_one_of_several(core.name);
  core.device_table = table_of(options.device_table);
  core.worker_devices =
      checked_devices("MirroredStrategy", std::move(options.devices), core.device_table);
  core.parameter_devices = core.worker_devices;
  core.cross_device_ops = std::move(options.cross_device_ops);
  core.replicas = options.replicas;
  return std::make_shared<StrategyCore>(std::move(core));
}

std::shared_ptr<StrategyCore> one_device_core(const Device& device, const ReplicaOptions& replicas,
                                              const std::optional<DeviceTable>& table) {
  CoreOptions core;
  core.name = "OneDeviceStrategy";
  warn_if_one_of_several(core.name);
  core.device_table = table_of(table);
  core.worker_devices = checked_devices("OneDeviceStrategy", {device}, core.device_table);
  core.parameter_devices = core.worker_devices;
  core.replicas = replicas;
  return std::make_shared<StrategyCore>(std::move(core));
}

std::shared_ptr<StrategyCore> central_core(CentralStorageOptions options) {
  CoreOptions core;
  core.name = "CentralStorageStrategy";
  warn_if_one_of_several(core.name);
  core.device_table = table_of(options.device_table);
  core.worker_devices = checked_devices("CentralStorageStrategy",
                                        std::move(options.compute_devices), core.device_table);
  const Device fallback =
      core.worker_devices.size() == 1 ? core.worker_devices.front() : Device("CPU:0");
  core.parameter_devices = {options.parameter_device.value_or(fallback)};
  core.device_table.check(core.parameter_devices);
  core.placement = Placement::central;
  core.cross_device_ops = std::move(options.cross_device_ops);
  core.replicas = options.replicas;
  return std::make_shared<StrategyCore>(std::move(core));
}

}  // namespace

MirroredStrategy::MirroredStrategy(MirroredOptions options)
    : Strategy(mirrored_core(std::move(options))) {}

MirroredOptions MirroredStrategy::per_numa_node() {
  MirroredOptions options;
  const int nodes = sys::Topology::read().numa_nodes();
  for (int i = 0; i < std::max(1, nodes); ++i) {
    options.devices.emplace_back(fmt::format("CPU:{}", i));
  }
  return options;
}

OneDeviceStrategy::OneDeviceStrategy(const Device& device, const ReplicaOptions& options,
                                     const std::optional<DeviceTable>& device_table)
    : Strategy(one_device_core(device, options, device_table)) {}

CentralStorageStrategy::CentralStorageStrategy(CentralStorageOptions options)
    : Strategy(central_core(std::move(options))) {}

std::unique_ptr<Strategy> Strategy::clone() const {
  if (core_->is_default()) {
    throw InvalidUsage("the default strategy is one and has no copies", Code::failed_precondition);
  }
  return std::make_unique<PlainStrategy>(core_->options());
}

namespace detail {

StrategyCore& default_core() {
  static PlainStrategy strategy([] {
    CoreOptions options;
    options.name = "DefaultStrategy";
    options.worker_devices = {Device()};
    options.parameter_devices = options.worker_devices;
    options.placement = Placement::plain;
    options.device_table = DeviceTable::machine();
    return options;
  }());
  return strategy.core();
}

ReplicaContext& default_replica() {
  static ReplicaState state{.core = &default_core(),
                            .index = 0,
                            .id = 0,
                            .device = Device(),
                            .run = nullptr,
                            .thread = {},
                            .global_batch_size = {}};
  static ReplicaContext context(state);
  return context;
}

}  // namespace detail
}  // namespace lockstep
