// What an input pipeline is told about its place among others, and how a dataset is distributed.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string>

namespace lockstep {

/// Handed to the function of distribute_from_function(): which pipeline it is to make.
struct InputContext {
  int num_input_pipelines = 1;
  int input_pipeline_id = 0;
  int num_replicas_in_sync = 1;

  /// InvalidUsage if the global batch cannot be divided evenly.
  [[nodiscard]] std::int64_t get_per_replica_batch_size(std::int64_t global_batch_size) const;
};
std::string to_string(const InputContext& context);
std::ostream& operator<<(std::ostream& out, const InputContext& context);

enum class InputReplicationMode {
  per_worker,   // one pipeline a worker, whose elements its replicas share out
  per_replica,  // a pipeline for each replica
};

/// The workers that read one dataset together.
struct InputWorkers {
  int count = 1;
  int index = 0;
  /// Adds up numbers over all workers, in place. Called by all at the same points: when a dataset
  /// is distributed, to compare the pipelines, and in each step, so that they end together. Needed
  /// by more than one worker.
  std::function<void(std::span<std::int64_t>)> sum = {};
};

struct InputOptions {
  /// Makes batches ahead, on a thread of its own, and brings them to each replica's device.
  bool prefetch_to_device = true;
  /// So many steps ahead.
  int prefetch_steps = 2;
  InputReplicationMode replication_mode = InputReplicationMode::per_worker;
  /// Only with per_replica and without prefetch_to_device.
  bool place_dataset_on_device = false;
  InputWorkers workers = {};
};

}  // namespace lockstep
