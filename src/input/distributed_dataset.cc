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
  // Those of the strategy, unless the caller knows others.
  if (Workers* workers = strategy.core().workers(); workers != nullptr && !options.workers.sum) {
    options.workers = {workers->count(), workers->index(),
                       [core = strategy.shared_core()](std::span<std::int64_t> numbers) {
                         core->workers()->sum(numbers, "step of a dataset");
                       }};
  }
  check_input_options(options, from_function);
  return {strategy.shared_core(), replica_devices(strategy), options, false, {}};
}

}  // namespace lockstep::detail
