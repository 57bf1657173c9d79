#include "lockstep/distributed_dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "strategy/core.h"
#include "strategy/verb.h"

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
      "a worker has no data left while others have, and there is no empty form of their elements, "
      "which have scalars: give every worker as many elements, or make them batches, which may "
      "have no rows",
      Code::invalid_argument);
}

StepMeeting meet(const InputWorkers& workers, const StepMeeting& own) {
  if (workers.count == 1) return own;
  std::int64_t all[] = {own.workers, own.rows, own.errors, own.lacking, own.scalars, own.unlearned};
  workers.sum(all);
  return {all[0], all[1], all[2], all[3], all[4], all[5]};
}

std::vector<std::int64_t> first_shape(const InputWorkers& workers,
                                      const std::vector<std::int64_t>& own) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(workers.count), 0);
  const auto index = static_cast<std::size_t>(workers.index);
  lengths[index] = static_cast<std::int64_t>(own.size());
  workers.sum(lengths);
  const auto first =
      std::find_if(lengths.begin(), lengths.end(), [](std::int64_t n) { return n > 0; });
  if (first == lengths.end()) return {};
  // Only one adds something.
  std::vector<std::int64_t> shape(static_cast<std::size_t>(*first), 0);
  if (static_cast<std::size_t>(first - lengths.begin()) == index) shape = own;
  workers.sum(shape);
  return shape;
}

std::int64_t steps_together(const std::vector<std::int64_t>& steps, bool pads) {
  std::int64_t together = pads ? 0 : kInfinite;
  for (const std::int64_t each : steps) {
    if (each == kUnknownCardinality) return kUnknownCardinality;
    const bool longer = each == kInfinite || (together != kInfinite && each > together);
    if (longer == pads) together = each;
  }
  return together;
}

Distribution make_distribution(Strategy& strategy, const char* method, const InputOptions& asked,
                               bool from_function, Here here) {
  require_cross(strategy, method);
  InputOptions options = asked;
  const bool own_workers = static_cast<bool>(asked.workers.sum);
  // Those of the strategy, unless the caller knows others.
  if (Workers* workers = strategy.core().workers(); workers != nullptr && !own_workers) {
    options.workers = {workers->count(), workers->index(),
                       [core = strategy.shared_core(), here](std::span<std::int64_t> numbers) {
                         const Verb verb("step of a dataset", here);
                         core->workers()->sum(numbers, "step of a dataset");
                       }};
  }
  check_input_options(options, from_function);
  Distribution how;
  how.core = strategy.shared_core();
  how.devices = replica_devices(strategy);
  how.options = options;
  how.own_workers = own_workers;
  how.here = here;
  return how;
}

namespace {

std::vector<std::string> texts_of(const ElementSpec& spec) {
  std::vector<std::string> texts;
  for (const TensorSpec& tensor : spec) texts.push_back(to_string(tensor));
  return texts;
}

/// What the stages do, the last one first. Divided by files each worker may shuffle in its own way.
void stages_into(std::vector<Trait>& traits, const Stage& stage, Sharding by) {
  std::string text = stage.signature();
  if (text.empty() || (by == Sharding::files && stage.shuffles())) {
    text.clear();
  } else if (stage.role() == Stage::Role::source || stage.role() == Stage::Role::reader) {
    const auto spec = stage.static_spec();
    if (spec && !spec->empty()) text += fmt::format(" of {}", fmt::join(texts_of(*spec), ", "));
  }
  if (!text.empty()) {
    std::string what = fmt::format("stage {}", traits.size());
    traits.push_back({std::move(what), std::move(text)});
  }
  for (const StagePtr& input : stage.inputs()) stages_into(traits, *input, by);
}

}  // namespace

void require_same_division(const Distribution& how, const Stage& stage) {
  constexpr std::size_t kNames = 10'000;  // of each reader: a pipeline may name files for ever
  Workers* workers = how.core->workers();
  if (workers == nullptr || how.own_workers || how.sharding == Sharding::none) return;
  const Verb verb("distribute", how.here);
  const bool by_files = how.sharding == Sharding::files;
  std::vector<Trait> files{{"the data divided by", by_files ? "files" : "elements"}};
  for (std::string& name : files_read(stage, kNames)) files.push_back({"file", std::move(name)});
  workers->require_alike("distribute: the files to read", files);
  std::vector<Trait> stages;
  stages_into(stages, stage, how.sharding);
  workers->require_alike("distribute: the stages of the dataset, the last one first", stages);
}

void agree_on_pipelines(Distribution& how, std::uint64_t own_fingerprint, std::int64_t own_steps) {
  how.fingerprint = own_fingerprint;
  const InputWorkers& workers = how.options.workers;
  if (workers.count == 1) return;
  const Verb verb("distribute", how.here);
  const auto index = static_cast<std::size_t>(workers.index);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(workers.count) + 2, 0);
  // Small enough that the sum of many does not overflow.
  numbers[0] = static_cast<std::int64_t>(mix(own_fingerprint, index) >> 24);
  numbers[1] = how.pads ? 1 : 0;
  numbers[index + 2] = own_steps;
  workers.sum(numbers);
  how.pads = numbers[1] == workers.count;  // one rule for the end of the data
  const auto layout = mix(static_cast<std::uint64_t>(workers.count), how.devices->size());
  how.fingerprint = mix(static_cast<std::uint64_t>(numbers[0]), layout);
  how.steps = steps_together({numbers.begin() + 2, numbers.end()}, how.pads);
}

}  // namespace lockstep::detail
