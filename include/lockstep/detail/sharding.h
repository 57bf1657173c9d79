// How a dataset is divided among workers and replicas: decisions, without any data.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/detail/stage.h"
#include "lockstep/input_context.h"

namespace lockstep::detail {

enum class Sharding { none, files, data };

struct ShardChoice {
  Sharding by = Sharding::none;
  StagePtr stage;   // by files: the pipeline over this worker's files; else as it was
  std::string why;  // for people
};

/// InvalidUsage for numbers and policies that do not exist, and for `file` where there are no
/// files (Code::not_found) or fewer than workers. `automatic` falls back to data, with a warning.
ShardChoice choose_sharding(const StagePtr& stage, int workers, int index, AutoShardPolicy policy);

/// Names of the files that a pipeline reads, without their directories and in the order before a
/// shuffle; of each reader at most `most`. None where it reads no files, or in ways nobody can see.
std::vector<std::string> files_read(const Stage& stage, std::size_t most);

/// Rows of a batch that the pipeline gives, if that can be known without running it.
std::optional<std::int64_t> known_batch_size(const Stage& stage);

/// Sizes of a worker's batches, one a replica and then over again: every step of all workers adds
/// up to the global batch, no two sizes differ by more than one, and so do each worker's own.
std::vector<std::int64_t> batch_sizes(std::int64_t global, int workers, int worker,
                                      int replicas_per_worker);

/// InvalidUsage naming batch() if an element is known to have a scalar.
void require_batches(const Stage& stage);
void check_input_options(const InputOptions& options, bool from_function);

}  // namespace lockstep::detail
