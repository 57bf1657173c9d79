// DistributedDataset: a dataset whose batches are shared out among the replicas of a strategy.
//
//   auto batches = strategy.distribute(dataset.shuffle(60'000, Seed{7}).batch(GlobalBatch{256}));
//   for (const auto& batch : batches) {                            // DistributedBatch<Example>
//     auto losses = strategy.run(step, net, batch);                // each replica gets its rows
//   }
//   std::cout << batches.explain();                                // who reads what, and why
//
// Inside the step replica.global_batch_size() is the number of rows that all replicas of all
// workers have together, also in a last, short step. A replica without rows gets a batch of none.
//
// It cannot be transformed any more: transform the dataset before.
//
// Threads: an iterator belongs to one thread at a time. With several workers every step of an
// iterator is a meeting of all: each must take as many.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/dataset.h"
#include "lockstep/detail/sharding.h"
#include "lockstep/input_context.h"
#include "lockstep/strategy.h"

namespace lockstep {

/// One step's rows: a PerReplica value that knows how many each replica has.
template <class T>
class DistributedBatch : public PerReplica<T> {
 public:
  DistributedBatch(std::vector<T> values, detail::SharedDevices devices,
                   std::vector<std::int64_t> rows, std::int64_t global_size)
      : PerReplica<T>(std::move(values), std::move(devices)),
        rows_(std::move(rows)),
        global_size_(global_size) {}

  /// Rows of all replicas of all workers.
  [[nodiscard]] std::int64_t global_size() const noexcept { return global_size_; }
  /// Rows of one replica of this process.
  [[nodiscard]] std::int64_t rows(int replica) const {
    return rows_.at(static_cast<std::size_t>(replica));
  }
  /// Its part of the whole: what a mean over its rows weighs in the mean over all.
  [[nodiscard]] double share(int replica) const {
    return global_size_ == 0
               ? 0
               : static_cast<double>(rows(replica)) / static_cast<double>(global_size_);
  }

 private:
  std::vector<std::int64_t> rows_;
  std::int64_t global_size_;
};

namespace detail {

template <class T>
inline constexpr bool is_distributed<DistributedBatch<T>> = true;

/// Brings tensors to the device of a replica.
Leaves to_replica(const StrategyCore& core, int replica, const Leaves& leaves);

/// What an iterator needs beside the streams.
struct Distribution {
  std::shared_ptr<StrategyCore> core;
  SharedDevices devices;
  InputOptions options;
  bool own_workers = false;  // the caller's: not those of the strategy
  bool pads = false;  // replicas without an element get an empty one; else the step is dropped
  std::string explanation;
};

/// What this process reads: one stream for all replicas, or one for each.
template <class T>
struct WorkerInput {
  std::vector<StageOfPtr<T>> streams;
  /// Elements that look the same, for a worker that has none itself.
  StageOfPtr<T> like;
};

[[noreturn]] void end_of_data();
/// DataError: this worker has nothing left, and an empty element cannot be made.
[[noreturn]] void no_empty_element();

}  // namespace detail

template <class T>
class DistributedIterator {
 public:
  DistributedIterator(const detail::WorkerInput<T>& input,
                      std::shared_ptr<const detail::Distribution> how, DatasetPosition position)
      : how_(std::move(how)), like_(input.like), position_(position) {
    const auto replicas = static_cast<std::uint64_t>(how_->devices->size());
    const std::uint64_t each = input.streams.size() == 1 ? replicas : 1;
    for (const auto& stage : input.streams) {
      streams_.push_back(stage->open({position.pass}));
      if (position.delivered > 0) streams_.back()->skip(position.delivered * each);
    }
    if (how_->options.prefetch_to_device) {
      const auto ahead = static_cast<std::size_t>(how_->options.prefetch_steps);
      ahead_.emplace(ahead, [this] {
        Row row = read_row();
        return row.empty() ? std::nullopt : std::optional(std::move(row));
      });
    }
  }
  ~DistributedIterator() = default;
  DistributedIterator(const DistributedIterator&) = delete;
  DistributedIterator& operator=(const DistributedIterator&) = delete;

  /// The next step's batch; none once no worker has any.
  std::optional<DistributedBatch<T>> next() {
    for (;;) {
      auto batch = next_step();
      // A step without a row on any worker is none: all of them see the same total.
      if (!batch || batch->global_size() > 0 || how_->options.workers.count == 1) return batch;
    }
  }
  std::optional<DistributedBatch<T>> get_next_as_optional() { return next(); }
  /// EndOfData once no worker has any.
  DistributedBatch<T> get_next() {
    if (auto batch = next()) return std::move(*batch);
    detail::end_of_data();
  }
  /// Where it stands, in steps; for DistributedDataset::iterate_from() on the same number of
  /// workers and replicas.
  [[nodiscard]] const DatasetPosition& position() const noexcept { return position_; }

 private:
  using Row = std::vector<std::optional<T>>;  // one element a replica

  std::optional<DistributedBatch<T>> next_step() {
    if (!waiting_) {
      try {
        waiting_ = take_row();
      } catch (...) {
        ++position_.delivered;  // its place is behind us
        throw;
      }
    }
    auto batch = meet(*waiting_);  // throws if a worker is lost: the row stays
    waiting_.reset();
    return batch;
  }

  /// Elements of one step, on their devices; empty at the end.
  Row read_row() {
    Row row;
    std::size_t have = 0;
    bool fillable = how_->pads;
    std::exception_ptr error;
    for (std::size_t i = 0; i < how_->devices->size(); ++i) {
      // Every replica's place is taken, also if one of them throws: the step is lost as a whole.
      auto outcome =
          detail::Outcome<T>::of([&] { return streams_[streams_.size() == 1 ? 0 : i]->next(); });
      if (outcome.error && !error) error = outcome.error;
      std::optional<T> element = std::move(outcome.element);
      if (element) {
        ++have;
        const Leaves leaves = detail::tensors_of(*element);
        fillable = fillable && detail::all_have_rows(leaves);
        element = detail::with_tensors(
            std::move(*element), detail::to_replica(*how_->core, static_cast<int>(i), leaves));
      }
      row.push_back(std::move(element));
    }
    if (error) std::rethrow_exception(error);
    if (have == 0 || (have < row.size() && !fillable)) return {};
    return row;
  }

  /// The next one; empty at the end, and from then on.
  Row take_row() {
    if (ended_) return {};
    Row row = ahead_ ? ahead_->next().value_or(Row{}) : read_row();
    ended_ = row.empty();
    return row;
  }

  /// Agrees with the other workers on whether there is a step and how large it is.
  std::optional<DistributedBatch<T>> meet(Row row) {
    std::vector<std::int64_t> rows(how_->devices->size(), 0);
    std::int64_t own = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!row[i]) continue;
      const Leaves leaves = detail::tensors_of(*row[i]);
      rows[i] = leaves.empty() || leaves.front().dim() == 0 ? 1 : leaves.front().size(0);
      own += rows[i];
    }
    std::int64_t totals[] = {row.empty() ? 0 : 1, own};
    if (how_->options.workers.count > 1) how_->options.workers.sum(totals);
    if (totals[0] < (how_->pads ? 1 : how_->options.workers.count)) {
      ended_ = true;  // for all of them
      return std::nullopt;
    }
    row.resize(how_->devices->size());
    std::vector<T> values;
    for (const std::optional<T>& element : row) {
      if (element) remember(*element);
    }
    for (std::size_t i = 0; i < row.size(); ++i) {
      values.push_back(row[i] ? std::move(*row[i]) : nothing(static_cast<int>(i)));
    }
    ++position_.delivered;
    return DistributedBatch<T>(std::move(values), how_->devices, std::move(rows), totals[1]);
  }

  void remember(const T& element) {
    const Leaves leaves = detail::tensors_of(element);
    if (!how_->pads || !detail::all_have_rows(leaves)) return;
    empty_ = detail::with_tensors(T(element), detail::slice_rows(leaves, 0, 0));
  }
  /// A batch without rows, of the kind that others have.
  T nothing(int replica) {
    if (!empty_) {
      const std::optional<T> first = like_->open({position_.pass})->next();
      if (first) remember(*first);
      if (!empty_) detail::no_empty_element();
    }
    return detail::with_tensors(
        T(*empty_), detail::to_replica(*how_->core, replica, detail::tensors_of(*empty_)));
  }

  using Leaves = detail::Leaves;
  std::shared_ptr<const detail::Distribution> how_;
  detail::StageOfPtr<T> like_;
  DatasetPosition position_;
  std::vector<detail::StreamPtr<T>> streams_;
  std::optional<T> empty_;
  std::optional<Row> waiting_;  // taken, but not yet agreed on
  bool ended_ = false;
  std::optional<detail::Ahead<Row>> ahead_;  // ends first
};

template <class T>
class DistributedDataset {
 public:
  using value_type = DistributedBatch<T>;

  DistributedDataset(detail::WorkerInput<T> input, detail::Distribution how)
      : input_(std::make_shared<const detail::WorkerInput<T>>(std::move(input))),
        how_(std::make_shared<const detail::Distribution>(std::move(how))),
        passes_(std::make_shared<std::atomic<std::uint64_t>>(0)) {}

  /// The next pass over the data, or the rest of one that stood at `position`.
  [[nodiscard]] std::unique_ptr<DistributedIterator<T>> iterate() const {
    return begin_at({passes_->fetch_add(1), 0, fingerprint()});
  }
  [[nodiscard]] std::unique_ptr<DistributedIterator<T>> iterate_from(
      const DatasetPosition& position) const {
    detail::require_same_pipeline(position, *input_->streams.front());
    passes_->store(position.pass + 1);
    return begin_at(position);
  }

  using Iterator = detail::ElementIterator<DistributedIterator<T>>;
  [[nodiscard]] Iterator begin() const { return Iterator(iterate()); }
  [[nodiscard]] Iterator end() const { return {}; }

  /// What each local replica gets. With several workers a batch may always be short.
  [[nodiscard]] std::vector<ElementSpec> element_spec() const {
    std::vector<ElementSpec> specs;
    for (std::size_t i = 0; i < how_->devices->size(); ++i) {
      ElementSpec spec = input_->streams[input_->streams.size() == 1 ? 0 : i]->spec();
      if (how_->options.workers.count > 1)
        spec = detail::with_rows(std::move(spec), kUnknownLength);
      specs.push_back(std::move(spec));
    }
    return specs;
  }
  /// Who reads what and why, and the pipeline of this process.
  [[nodiscard]] std::string explain() const {
    return how_->explanation + detail::explain(*input_->streams.front());
  }

  // Transformations do not compile; each says why.
  template <class... Args>
  void map(const Args&...) const {
    refuse<Args...>();
  }
  template <class... Args>
  void filter(const Args&...) const {
    refuse<Args...>();
  }
  template <class... Args>
  void batch(const Args&...) const {
    refuse<Args...>();
  }
  template <class... Args>
  void shuffle(const Args&...) const {
    refuse<Args...>();
  }
  template <class... Args>
  void repeat(const Args&...) const {
    refuse<Args...>();
  }
  template <class... Args>
  void take(const Args&...) const {
    refuse<Args...>();
  }
  template <class... Args>
  void prefetch(const Args&...) const {
    refuse<Args...>();
  }

 private:
  template <class... Args>
  static void refuse() {
    static_assert(sizeof...(Args) > 1000,
                  "lockstep: a distributed dataset has no transformations; transform the dataset "
                  "before strategy.distribute()");
  }
  [[nodiscard]] std::uint64_t fingerprint() const {
    return detail::fingerprint(*input_->streams.front());
  }
  [[nodiscard]] std::unique_ptr<DistributedIterator<T>> begin_at(DatasetPosition position) const {
    return std::make_unique<DistributedIterator<T>>(*input_, how_, position);
  }

  std::shared_ptr<const detail::WorkerInput<T>> input_;
  std::shared_ptr<const detail::Distribution> how_;
  std::shared_ptr<std::atomic<std::uint64_t>> passes_;
};

// --- templates ---------------------------------------------------------------------------------

namespace detail {

Distribution make_distribution(Strategy& strategy, const char* method, const InputOptions& options,
                               bool from_function);

/// Mismatch if the workers divide a dataset differently, or not the same files: rows would be read
/// twice and others never. All workers together, unless they are the caller's.
void require_same_division(const Distribution& how, const Stage& stage, Sharding by);

/// The pipeline that one worker runs.
template <class T>
StageOfPtr<T> worker_stage(const StageOfPtr<T>& stage, const Distribution& how,
                           std::string& explanation) {
  const InputWorkers& workers = how.options.workers;
  const auto local = static_cast<int>(how.devices->size());
  const int replicas = workers.count * local;
  const ShardChoice choice =
      choose_sharding(stage, workers.count, workers.index, auto_shard_policy(*stage));
  require_same_division(how, *stage, choice.by);
  explanation += "workers: " + choice.why + "\n";
  StageOfPtr<T> own = as_stage_of<T>(choice.stage);
  const auto global = known_batch_size(*stage);
  if (replicas == 1) {
    explanation += "replicas: one, which takes every batch whole\n";
  } else if (choice.by != Sharding::data && global) {
    own = std::make_shared<RebatchStage<T>>(
        own, batch_sizes(*global, workers.count, workers.index, local));
    explanation += "replicas: batches of " + std::to_string(*global) + " rows over " +
                   std::to_string(replicas) +
                   " replicas, cut anew to sizes that differ by at most "
                   "one\n";
  } else {
    own = std::make_shared<SplitStage<T>>(own, replicas);
    explanation += "replicas: every batch in " + std::to_string(replicas) + " slices, " +
                   (global ? "dealt out among the workers\n"
                           : "since its size is not known before it is made\n");
  }
  if (choice.by == Sharding::data) {
    own = as_stage_of<T>(own->sharded(workers.count, workers.index));
  }
  return own;
}

/// The pipeline before stages that only leave elements out.
template <class T>
StageOfPtr<T> fullest(StageOfPtr<T> stage) {
  while (stage->keeps_batches() && stage->role() == Stage::Role::transform) {
    stage = as_stage_of<T>(stage->inputs().front());
  }
  return stage;
}

/// Steps in which some replicas have nothing can be filled up with batches of no rows.
template <class T>
bool can_pad(const StageOf<T>& stage, int workers) {
  const auto spec = stage.static_spec();
  if (!spec) return true;
  for (const TensorSpec& tensor : *spec) {
    if (tensor.shape.empty()) return false;
  }
  return workers > 1 || !is_static(*spec);
}

}  // namespace detail

template <class T, class B>
DistributedDataset<T> Strategy::distribute(const Dataset<T, B>& dataset,
                                           const InputOptions& options) {
  static_assert(!std::is_same_v<B, batching::PerReplica>,
                "lockstep: distribute() divides global batches; say batch(GlobalBatch{..}), or use "
                "distribute_from_function() for batches of one replica");
  static_assert(detail::IsTensorNest<T>::value,
                "lockstep: distribute() takes a dataset of nests of tensors; map() it first");
  detail::Distribution how = detail::make_distribution(*this, "distribute", options, false);
  if (how.devices->size() * static_cast<std::size_t>(how.options.workers.count) > 1) {
    detail::require_batches(*dataset.stage());
  }
  std::string explanation;
  detail::StageOfPtr<T> own = detail::worker_stage(dataset.stage(), how, explanation);
  how.pads = detail::can_pad(*own, how.options.workers.count);
  how.explanation = std::move(explanation);
  return {{{std::move(own)}, dataset.stage()}, std::move(how)};
}

template <class F>
auto Strategy::distribute_from_function(F&& fn, const InputOptions& options) {
  using D = std::remove_cvref_t<std::invoke_result_t<F&, const InputContext&>>;
  using T = typename D::value_type;
  static_assert(!std::is_same_v<typename D::batching_type, batching::Global>,
                "lockstep: every replica takes whole elements of this dataset; say "
                "batch(PerReplicaBatch{..}), or give global batches to distribute()");
  static_assert(detail::IsTensorNest<T>::value,
                "lockstep: the dataset must be one of nests of tensors; map() it first");
  detail::Distribution how =
      detail::make_distribution(*this, "distribute_from_function", options, true);
  const auto local = static_cast<int>(how.devices->size());
  const bool per_replica = options.replication_mode == InputReplicationMode::per_replica;
  const int replicas = local * how.options.workers.count;
  std::vector<detail::StageOfPtr<T>> streams;
  for (int i = 0; i < (per_replica ? local : 1); ++i) {
    const InputContext context{per_replica ? local : how.options.workers.count,
                               per_replica ? i : how.options.workers.index, replicas};
    streams.push_back(fn(context).stage());
  }
  how.explanation = per_replica ? "replicas: each has a dataset of its own\n"
                                : "replicas: each takes the next element, whole\n";
  how.pads = detail::can_pad(*streams.front(), how.options.workers.count);
  detail::StageOfPtr<T> like = detail::fullest(streams.front());
  return DistributedDataset<T>({std::move(streams), std::move(like)}, std::move(how));
}

}  // namespace lockstep
