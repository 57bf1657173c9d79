#include "lockstep/distributed_dataset.h"

#include "strategy/core.h"

namespace lockstep::detail {

Leaves to_replica(const StrategyCore& core, int replica, const Leaves& leaves) {
  const Device& device = core.options().worker_devices[static_cast<std::size_t>(replica)];
  const at::Device place = core.options().device_table.torch_device(device);
  Leaves there;
  there.reserve(leaves.size());
  for (const Tensor& tensor : leaves) {
    there.push_back(tensor.device() == place ? tensor : tensor.to(place));
  }
  return there;
}

void end_of_data() {
  throw EndOfData("the dataset is exhausted on every worker; iterate it anew for another pass");
}

void no_empty_element() {
  throw DataError(
      "this worker has no data left while others have, and its elements have no empty form: give "
      "every worker as many elements, or make them batches, which may have no rows",
      Code::failed_precondition);
}

Distribution make_distribution(Strategy& strategy, const char* method, const InputOptions& asked,
                               bool from_function) {
  require_cross(strategy, method);
  InputOptions options = asked;
  const bool own_workers = static_cast<bool>(asked.workers.sum);
  // Those of the strategy, unless the caller knows others.
  if (Workers* workers = strategy.core().workers(); workers != nullptr && !own_workers) {
    options.workers = {workers->count(), workers->index(),
                       [core = strategy.shared_core()](std::span<std::int64_t> numbers) {
                         core->workers()->sum(numbers, "step of a dataset");
                       }};
  }
  check_input_options(options, from_function);
  return {strategy.shared_core(), replica_devices(strategy), options, own_workers, false, {}};
}

void require_same_division(const Distribution& how, const Stage& stage, Sharding by) {
  constexpr std::size_t kNames = 10'000;  // of each reader: a pipeline may name files for ever
  Workers* workers = how.core->workers();
  if (workers == nullptr || how.own_workers || by == Sharding::none) return;
  std::vector<Trait> traits{{"the data divided by", by == Sharding::files ? "files" : "elements"}};
  for (std::string& name : files_read(stage, kNames)) traits.push_back({"file", std::move(name)});
  workers->require_alike("distribute: the files to read", traits);
}

}  // namespace lockstep::detail
