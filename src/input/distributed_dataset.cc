#include "lockstep/distributed_dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/type_name.h"
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

void no_shape_of(const std::type_info& type) {
  throw DataError(
      fmt::format("a worker has had no element yet, and elements of type {} cannot be described to "
                  "it: that takes keys that are numbers or texts, and parts that can be made "
                  "without arguments. Give every worker at least one element",
                  type_name(type)),
      Code::invalid_argument);
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

namespace {

/// As Workers::gather(), of workers that can only add up numbers.
std::vector<std::string> gather_by_sums(const InputWorkers& workers, const std::string& own) {
  const auto words = [](std::int64_t bytes) {
    return (static_cast<std::size_t>(bytes) + sizeof(std::int64_t) - 1) / sizeof(std::int64_t);
  };
  const auto index = static_cast<std::size_t>(workers.index);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(workers.count), 0);
  lengths[index] = static_cast<std::int64_t>(own.size());
  workers.sum(lengths);
  std::vector<std::size_t> begins;
  std::size_t total = 0;
  for (const std::int64_t length : lengths) {
    begins.push_back(total);
    total += words(length);
  }
  // Each place is written by one worker only.
  std::vector<std::int64_t> all(total, 0);
  if (!own.empty()) std::memcpy(&all[begins[index]], own.data(), own.size());
  if (total > 0) workers.sum(all);
  std::vector<std::string> texts;
  for (std::size_t w = 0; w < lengths.size(); ++w) {
    std::string text(static_cast<std::size_t>(lengths[w]), '\0');
    if (!text.empty()) std::memcpy(text.data(), &all[begins[w]], text.size());
    texts.push_back(std::move(text));
  }
  return texts;
}

void compare(const Distribution& how, std::string_view subject, const std::vector<Trait>& traits) {
  if (!how.own_workers) return how.core->workers()->require_alike(subject, traits);
  const InputWorkers& workers = how.options.workers;
  const Comparing group{
      .gather = [&](const std::string& own) { return gather_by_sums(workers, own); },
      .before_throwing =
          [&] {
            std::int64_t nothing = 0;
            try {
              workers.sum(std::span(&nothing, 1));
            } catch (const std::exception&) {  // another one has met everybody and thrown already
            }
          }};
  require_alike(group, subject, traits);
}

const char* divided_by(Sharding sharding) {
  switch (sharding) {
    case Sharding::files:
      return "files";
    case Sharding::data:
      return "elements";
    case Sharding::none:
      break;
  }
  return "nobody (AutoShardPolicy::off)";
}

}  // namespace

ShardChoice choose_together(Distribution& how, const StagePtr& stage, Elements elements) {
  constexpr std::size_t kNames = 10'000;  // of each reader: a pipeline may name files for ever
  const InputWorkers& workers = how.options.workers;
  ShardChoice choice;
  std::vector<Trait> files;
  std::vector<Trait> stages;
  std::exception_ptr refused;
  try {
    if (elements == Elements::batches) require_batches(*stage);
    choice = choose_sharding(stage, workers.count, workers.index, auto_shard_policy(*stage));
    how.sharding = choice.by;
    files.push_back({"the data divided by", divided_by(choice.by)});
    if (workers.count > 1 && choice.by != Sharding::none) {
      for (std::string& name : files_read(*stage, kNames)) {
        files.push_back({"file", std::move(name)});
      }
      stages_into(stages, *stage, choice.by);
    }
  } catch (const std::exception& error) {
    // Not before the others have been told: they would wait for this worker.
    refused = std::current_exception();
    files = {{"an error:", error.what()}};
  }
  if (workers.count > 1) {
    const Verb verb("distribute", how.here);
    compare(how, "distribute: the files to read", files);
    if (!refused && choice.by != Sharding::none) {
      compare(how, "distribute: the stages of the dataset, the last one first", stages);
    }
  }
  if (refused) std::rethrow_exception(refused);
  return choice;
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
