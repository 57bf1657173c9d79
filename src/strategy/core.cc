#include "strategy/core.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <new>

#include "base/log.h"
#include "lockstep/all_reduce_cross_device_ops.h"
#include "strategy/run.h"
#include "sys/pages.h"
#include "tensor/blas.h"
#include "tensor/operator_threads.h"

namespace lockstep::detail {

namespace {

/// Aligned as libtorch has it.
std::shared_ptr<void> block_of_this_process(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  void* const block = std::aligned_alloc(kAlignment, sys::round_up(bytes, kAlignment));
  if (block == nullptr) throw std::bad_alloc();
  return {block, std::free};
}

}  // namespace

StrategyCore::StrategyCore(CoreOptions options)
    : options_(std::move(options)),
      devices_(std::make_shared<const DeviceList>(options_.worker_devices)) {
  if (options_.replicas.threads_per_replica && *options_.replicas.threads_per_replica < 1) {
    throw InvalidUsage(fmt::format("{}: threads_per_replica must be at least 1, not {}", name(),
                                   *options_.replicas.threads_per_replica));
  }
  seed_ = options_.replicas.seed.value_or(at::detail::getDefaultCPUGenerator().current_seed());
  for (int i = 0; i < replicas(); ++i) generators_.emplace_back(seed_, first_replica() + i);
  if (!options_.cross_device_ops) {
    options_.chose_ops = true;
    options_.cross_device_ops =
        default_cross_device_ops(options_.worker_devices, options_.device_table);
  }
  if (workers() != nullptr) {
    placed_memory_ = std::make_unique<tensor::PlacedMemory>([this](std::size_t bytes) {
      const coll::Memory memory = workers()->session().allocate(bytes);
      return std::shared_ptr<void>(memory.data(), [memory](void*) {});
    });
  } else if (replicas() > 1) {
    placed_memory_ = std::make_unique<tensor::PlacedMemory>(block_of_this_process);
  }
  if (!is_default()) {
    threads_per_replica_ = options_.replicas.threads_per_replica.value_or(
        replicas_in_sync() == 1 ? tensor::default_operator_threads() : 1);
    tensor::warn_about_blas(tensor::BlasUse::here(replicas(), threads_per_replica_));
  }
}

StrategyCore::~StrategyCore() = default;

void StrategyCore::choose_ops_by_links() {
  if (!options_.chose_ops) return;
  options_.cross_device_ops =
      choose_cross_device_ops(options_.worker_devices, options_.device_table);
}

void StrategyCore::reseed(std::uint64_t seed) {
  seed_ = seed;
  for (tensor::ReplicaGenerator& generator : generators_) generator.reseed(seed);
}

Strategy& StrategyCore::strategy() const {
  Strategy* const strategy = strategy_.load();
  if (strategy == nullptr) {
    throw InvalidUsage(fmt::format("this {} is gone: a strategy must outlive its scopes, "
                                   "set_strategy() and every use of its variables but reading",
                                   name()),
                       Code::failed_precondition);
  }
  return *strategy;
}

Lanes& StrategyCore::lanes() {
  const MutexLock lock(mutex_);
  if (!lanes_) {
    lanes_ = std::make_unique<Lanes>(LaneOptions{.count = replicas(),
                                                 .name = "ls-lane",
                                                 .threads = threads_per_replica_,
                                                 .cores = cores_to_pin()});
  }
  return *lanes_;
}

std::vector<sys::CpuSet> StrategyCore::cores_to_pin() {
  if (!options_.replicas.pin) return {};
  const int own = replicas() * threads_per_replica_;
  const int before = workers() != nullptr ? workers()->index_on_host() * own : 0;
  const sys::Topology machine = sys::Topology::read();
  const auto cores_after = [&](int others) {
    return machine.cores_for(
        {.lanes = replicas(), .threads = threads_per_replica_, .before = others});
  };
  std::vector<sys::CpuSet> cores = cores_after(before);
  // A launcher may have given each worker cores of its own. If it has not, the lease is refused.
  if (cores.empty()) cores = cores_after(0);
  if (cores.empty()) {
    log_warning(
        "{}: replicas are not pinned: {} of {} threads need {} cores, and this process may use {}",
        name(), replicas(), threads_per_replica_, own, machine.usable_cores());
    return {};
  }
  leased_cores_ = sys::CoreLease::take(cores);
  if (!leased_cores_) {
    log_warning(
        "{}: replicas are not pinned: processors among {} cannot be reserved, most likely because "
        "another strategy or worker of this host has pinned threads there. Give each job cores of "
        "its own "
        "(taskset, cgroups), or leave replicas.pin off",
        name(), fmt::join(cores, ", "));
    return {};
  }
  return cores;
}

void StrategyCore::on_lanes(const std::function<void(int)>& work) {
  // Lanes that wait in a meeting are still in their step functions.
  const auto without_gradients = [&](int lane) {
    const tensor::PlacedMemory::Scope nowhere(nullptr);
    work(lane);
  };
  const tensor::OperatorThreads threads(threads_per_replica_);  // the caller's is lane 0
  const Turn turn(*this);
  if (replicas() == 1) {
    without_gradients(0);
  } else {
    lanes().on_all(without_gradients);
  }
}

void StrategyCore::set_last_errors(std::vector<std::exception_ptr> errors) {
  const MutexLock lock(mutex_);
  last_errors_ = std::move(errors);
}

std::vector<std::exception_ptr> StrategyCore::last_errors() const {
  const MutexLock lock(mutex_);
  return last_errors_;
}

namespace {

/// Replica `index` on the calling thread, which is all of a strategy with one replica.
void run_inline(StrategyCore& core, const RunOptions& options,
                const std::function<void(ReplicaContext&)>& body) {
  ReplicaState state{.core = &core,
                     .index = 0,
                     .id = core.first_replica(),
                     .device = core.options().worker_devices.front(),
                     .run = nullptr,
                     .thread = std::this_thread::get_id(),
                     .global_batch_size = options.global_batch_size};
  ReplicaContext context(state);
  ThreadContext inside = thread_context();
  inside.modes.push_back({core.shared_from_this(), &context});
  if (!core.is_default()) inside.device = state.device.str();
  const ContextSwap in_replica(std::move(inside));
  std::optional<tensor::ReplicaGenerator::Scope> random;
  std::optional<tensor::PlacedMemory::Scope> gradients;
  if (!core.is_default()) {
    random.emplace(core.generator(0));
    gradients.emplace(core.placed_memory());
  }
  body(context);
}

/// The text of an exception that leaves a step function, for the other workers.
std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& thrown) {
    return thrown.what_without_backtrace();
  } catch (const std::exception& thrown) {
    return thrown.what();
  } catch (...) {
    return "something that is no std::exception";
  }
}

}  // namespace

void run_replicas(Strategy& strategy, const RunOptions& options,
                  const std::function<void(ReplicaContext&)>& body) {
  StrategyCore& core = strategy.core();
  const CrossEntry entry(core, "run");
  if (thread_context().updating) {
    throw InvalidUsage(
        "run() inside update(): a copy of a variable is being updated; run first, "
        "then update",
        Code::failed_precondition);
  }
  try {
    const Turn turn(core);
    if (core.replicas() == 1) {
      run_inline(core, options, body);
    } else {
      Run run(core, options, body);
      run.execute();
    }
  } catch (...) {
    // The others may wait for what this step would have sent.
    if (Workers* workers = core.workers()) {
      workers->abandon(
          fmt::format("its step function threw: {}", text_of(std::current_exception())));
      // A peer that was given up may still write there.
      core.placed_memory()->close();
    }
    throw;
  }
}

void merge(ReplicaContext& replica, const MergeCall& call) {
  require_replica(replica, "merge_call");
  ReplicaState& state = replica.state();
  if (state.run != nullptr) {
    if (state.thread != std::this_thread::get_id()) {
      throw InvalidUsage(
          "merge_call from a thread that is not the replica's: an autograd hook, or "
          "a thread of your own; only the step function's thread can meet the other "
          "replicas",
          Code::failed_precondition);
    }
    state.run->merge(state.index, call);
    return;
  }
  // The only replica meets itself.
  ThreadContext cross = thread_context();
  cross.modes.push_back({state.core->shared_from_this(), nullptr});
  const ContextSwap in_merge(std::move(cross));
  const tensor::ReplicaGenerator::Pause process_wide;
  const tensor::PlacedMemory::Scope no_gradients(nullptr);
  call.run(state.core->strategy(), {call.frame});
}

int local_index(const ReplicaContext& replica) { return replica.state().index; }

const SharedDevices& replica_devices(Strategy& strategy) { return strategy.core().devices(); }

int first_replica(Strategy& strategy) { return strategy.core().first_replica(); }

}  // namespace lockstep::detail
