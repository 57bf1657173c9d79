#include "lockstep/detail/sharding.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "lockstep/error.h"

namespace lockstep {

std::int64_t InputContext::get_per_replica_batch_size(std::int64_t global_batch_size) const {
  if (global_batch_size % num_replicas_in_sync != 0) {
    throw InvalidUsage(fmt::format(
        "the global batch of {} cannot be divided evenly among {} replicas; take a multiple of {}",
        global_batch_size, num_replicas_in_sync, num_replicas_in_sync));
  }
  return global_batch_size / num_replicas_in_sync;
}

std::string to_string(const InputContext& context) {
  return fmt::format("tf.distribute.InputContext(input pipeline id {}, total: {})",
                     context.input_pipeline_id, context.num_input_pipelines);
}

std::ostream& operator<<(std::ostream& out, const InputContext& context) {
  return out << to_string(context);
}

namespace detail {

namespace {

/// Its first input names the files that are read.
bool reads_named_files(const Stage& stage) {
  return stage.role() == Stage::Role::reader ||
         (stage.role() == Stage::Role::flatten && stage.reads_its_elements());
}

/// Divides names of files. A shuffle comes after: before it, workers with other orders would take
/// some files twice and others never.
StagePtr divide_names(const StagePtr& names, int workers, int index) {
  if (!names->shuffles()) return names->sharded(workers, index);
  return names->with_inputs({divide_names(names->inputs().front(), workers, index)});
}

/// The search for the place where files are named.
class FileSharding {
 public:
  FileSharding(int workers, int index) : workers_(workers), index_(index) {}

  /// Nothing if there is no such place; why_not() says.
  StagePtr divide(const StagePtr& stage) {
    if (reads_named_files(*stage)) return divide_input(stage);
    switch (stage->role()) {
      case Stage::Role::flatten:
      case Stage::Role::transform:
      case Stage::Role::combine:
        return divide_inputs(stage);
      case Stage::Role::reader:
      case Stage::Role::source:
      case Stage::Role::opaque:
        break;
    }
    why_not_ = fmt::format("{} reads no files", stage->describe());
    return nullptr;
  }
  [[nodiscard]] const std::string& why_not() const noexcept { return why_not_; }
  /// Files of a reader that has fewer than there are workers.
  [[nodiscard]] std::optional<std::size_t> too_few() const noexcept { return too_few_; }

 private:
  StagePtr divide_input(const StagePtr& stage) {
    const StagePtr names = stage->inputs().front();
    const std::size_t count = names->first_strings(static_cast<std::size_t>(workers_)).size();
    if (count < static_cast<std::size_t>(workers_)) {
      too_few_ = count;
      why_not_ = fmt::format("{} has {} files for {} workers", stage->describe(), count, workers_);
      return nullptr;
    }
    return stage->with_inputs({divide_names(names, workers_, index_)});
  }
  StagePtr divide_inputs(const StagePtr& stage) {
    std::vector<StagePtr> divided;
    for (const StagePtr& input : stage->inputs()) {
      StagePtr own = divide(input);
      if (!own) return nullptr;
      divided.push_back(std::move(own));
    }
    return stage->with_inputs(divided);
  }

  int workers_;
  int index_;
  std::string why_not_;
  std::optional<std::size_t> too_few_;
};

}  // namespace

ShardChoice choose_sharding(const StagePtr& stage, int workers, int index, AutoShardPolicy policy) {
  if (workers < 1 || index < 0 || index >= workers) {
    throw InvalidUsage(fmt::format("worker {} of {}: the index must be in 0..{}", index, workers,
                                   workers < 1 ? 0 : workers - 1));
  }
  switch (policy) {
    case AutoShardPolicy::off:
      return {Sharding::none, stage, "auto-sharding is off: every worker reads everything"};
    case AutoShardPolicy::data:
    case AutoShardPolicy::automatic:
    case AutoShardPolicy::file:
      break;
    default:
      throw InvalidUsage(
          fmt::format("no auto-shard policy has the number {}", static_cast<int>(policy)));
  }
  if (workers == 1) return {Sharding::none, stage, "one worker: it reads everything"};
  if (policy == AutoShardPolicy::data) {
    return {Sharding::data, stage, "by data, as was asked for"};
  }
  FileSharding files(workers, index);
  if (StagePtr divided = files.divide(stage)) {
    return {Sharding::files, divided,
            fmt::format("by files: every {}. file, from number {} on", workers, index)};
  }
  if (policy == AutoShardPolicy::file) {
    if (files.too_few()) {
      throw InvalidUsage(
          fmt::format("cannot divide by files: {}; give at least {} files, or use "
                      "AutoShardPolicy::data",
                      files.why_not(), workers));
    }
    throw InvalidUsage(fmt::format("cannot divide by files: {}; use AutoShardPolicy::data or "
                                   "automatic",
                                   files.why_not()),
                       Code::not_found);
  }
  log_warning(
      "input: the dataset is divided by data, not by files: {}. Every worker reads all of it",
      files.why_not());
  return {Sharding::data, stage,
          fmt::format("by data, since {}: every worker reads everything and uses its part",
                      files.why_not())};
}

std::vector<std::string> files_read(const Stage& stage, std::size_t most) {
  std::vector<std::string> files;
  if (reads_named_files(stage)) {
    StagePtr names = stage.inputs().front();
    while (names->shuffles()) names = names->inputs().front();
    for (const std::string& name : names->first_strings(most)) {
      files.push_back(std::filesystem::path(name).filename());
    }
    return files;
  }
  for (const StagePtr& input : stage.inputs()) {
    for (std::string& name : files_read(*input, most)) files.push_back(std::move(name));
  }
  return files;
}

std::optional<std::int64_t> known_batch_size(const Stage& stage) {
  if (const auto rows = stage.batch_size()) return rows;
  const auto same_rows = [](const ElementSpec& spec) -> std::optional<std::int64_t> {
    std::optional<std::int64_t> rows;
    for (const TensorSpec& tensor : spec) {
      if (tensor.shape.empty() || tensor.shape.front() <= 0) return std::nullopt;
      if (rows && *rows != tensor.shape.front()) return std::nullopt;
      rows = tensor.shape.front();
    }
    return rows;
  };
  if (const auto spec = stage.static_spec()) {
    if (const auto rows = same_rows(*spec)) return rows;
  }
  if (!stage.keeps_batches()) return std::nullopt;
  std::optional<std::int64_t> rows;
  for (const StagePtr& input : stage.inputs()) {
    const auto own = known_batch_size(*input);
    if (!own || (rows && *rows != *own)) return std::nullopt;
    rows = own;
  }
  return rows;
}

std::vector<std::int64_t> batch_sizes(std::int64_t global, int workers, int worker,
                                      int replicas_per_worker) {
  const int replicas = workers * replicas_per_worker;
  std::vector<std::int64_t> sizes = even_sizes(global, static_cast<std::size_t>(replicas));
  // Each worker begins with its own replicas.
  std::rotate(sizes.begin(),
              sizes.begin() + static_cast<std::ptrdiff_t>(worker) * replicas_per_worker,
              sizes.end());
  return sizes;
}

void require_batches(const Stage& stage) {
  const auto spec = stage.static_spec();
  if (!spec) return;  // found out with the first element
  for (const TensorSpec& tensor : *spec) {
    if (tensor.shape.empty()) {
      throw InvalidUsage(
          fmt::format("distribute: the elements are not batches, one of their "
                      "tensors is a scalar ({}); add batch(GlobalBatch{{..}}) to the "
                      "dataset",
                      to_string(tensor)));
    }
  }
}

void check_input_options(const InputOptions& options, bool from_function) {
  const bool per_replica = options.replication_mode == InputReplicationMode::per_replica;
  if (options.prefetch_steps < 1) {
    throw InvalidUsage(
        fmt::format("prefetch_steps is {}; at least 1 is needed", options.prefetch_steps));
  }
  if (per_replica && (!from_function || options.workers.count > 1)) {
    throw Unsupported(
        "InputReplicationMode::per_replica is for distribute_from_function() in one process: there "
        "fn makes a dataset for each replica");
  }
  if (options.place_dataset_on_device && !per_replica) {
    throw InvalidUsage(
        "place_dataset_on_device needs InputReplicationMode::per_replica: one dataset a device");
  }
  if (options.place_dataset_on_device && options.prefetch_to_device) {
    throw InvalidUsage(
        "place_dataset_on_device and prefetch_to_device exclude each other: what is made on the "
        "device need not be brought there");
  }
  if (options.workers.count > 1 && !options.workers.sum) {
    throw InvalidUsage(
        "several workers need InputWorkers::sum, so that they end together and know the size of "
        "the whole batch");
  }
}

}  // namespace detail
}  // namespace lockstep
