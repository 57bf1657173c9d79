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
// An exception of the pipeline is thrown by the step that it belongs to and costs no other row: the
// next step has the elements that could be made.
//
// Threads: an iterator belongs to one thread at a time. With several workers distribute() and every
// step of an iterator are meetings of all: each must take as many.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include "lockstep/dataset.h"
#include "lockstep/detail/nest_shape.h"
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
  Here here;                 // where the user has distributed it
  bool pads = false;  // replicas without an element get an empty one; else the step is dropped
  std::string explanation;
  Sharding sharding = Sharding::none;
  std::uint64_t fingerprint = 0;      // of the pipelines of all workers: the same on each
  std::optional<std::int64_t> steps;  // of all workers together; none: those of this one
};

/// What the workers add up in the meeting of a step.
struct StepMeeting {
  std::int64_t workers = 0;    // that have an element
  std::int64_t rows = 0;       // of all replicas
  std::int64_t errors = 0;     // that pipelines threw so far
  std::int64_t lacking = 0;    // workers with a replica that has no element
  std::int64_t scalars = 0;    // workers whose elements have scalars
  std::int64_t unlearned = 0;  // lacking workers that do not know what an element looks like
};
StepMeeting meet(const InputWorkers& workers, const StepMeeting& own);
/// The shape of the first worker that gives one; empty if none does.
std::vector<std::int64_t> first_shape(const InputWorkers& workers,
                                      const std::vector<std::int64_t>& own);

/// Steps until all are through, or the first if a step needs an element of each.
std::int64_t steps_together(const std::vector<std::int64_t>& steps, bool pads);
/// Steps that one worker has elements for; `streams`: one for all replicas, or one for each.
template <class T>
std::int64_t steps_of(const std::vector<StageOfPtr<T>>& streams, std::size_t replicas, bool pads) {
  const auto each = static_cast<std::int64_t>(streams.size() == 1 ? replicas : 1);
  std::vector<std::int64_t> steps;
  for (const StageOfPtr<T>& stream : streams) {
    const std::int64_t elements = stream->cardinality();
    steps.push_back(elements < 0 ? elements : (pads ? elements + each - 1 : elements) / each);
  }
  return steps_together(steps, pads);
}

[[noreturn]] void end_of_data();
/// DataError: a worker has nothing left, and an empty element cannot be made.
[[noreturn]] void no_empty_element();
/// DataError: a worker has had no element, and the others cannot tell it what one looks like.
[[noreturn]] void no_shape_of(const std::type_info& type);

}  // namespace detail

template <class T>
class DistributedIterator {
 public:
  DistributedIterator(const std::vector<detail::StageOfPtr<T>>& streams,
                      std::shared_ptr<const detail::Distribution> how, DatasetPosition position)
      : how_(std::move(how)), position_(position) {
    for (const auto& stage : streams) streams_.push_back(stage->open({position.pass}));
    go_to(position);
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
  /// Behind the last step, the same on all workers; for DistributedDataset::iterate_from(). An
  /// error that came out since then comes out again there.
  [[nodiscard]] const DatasetPosition& position() const noexcept { return position_; }

 private:
  using Row = std::vector<std::optional<T>>;  // one element a replica

  void go_to(const DatasetPosition& position) {
    if (position.errors == 0) {
      const std::uint64_t each = streams_.size() == 1 ? how_->devices->size() : 1;
      for (const auto& stream : streams_) {
        stream->skip(position.delivered * each, detail::Skip::cheaply).require_files();
      }
      return;
    }
    // Where errors came out can only be seen by making all elements again.
    for (std::uint64_t step = 0; step < position.delivered;) {
      try {
        read_row();
        ++step;
      } catch (...) {
        if (static_cast<std::uint64_t>(++errors_) > position.errors) throw;
      }
    }
  }

  std::optional<DistributedBatch<T>> next_step() {
    if (!waiting_) waiting_ = take_row();
    auto batch = meet(*waiting_);  // throws if a worker is lost: the row stays
    waiting_.reset();
    return batch;
  }

  /// Elements of one step, on their devices; empty at the end.
  Row read_row() {
    while (begun_.size() < how_->devices->size()) {
      const std::size_t i = begun_.size();
      // Throws for an element that could not be made; the replicas before have theirs and wait.
      std::optional<T> element = streams_[streams_.size() == 1 ? 0 : i]->next();
      if (element) {
        element = detail::with_tensors(
            std::move(*element),
            detail::to_replica(*how_->core, static_cast<int>(i), detail::tensors_of(*element)));
      }
      begun_.push_back(std::move(element));
    }
    Row row = std::exchange(begun_, {});
    std::size_t have = 0;
    bool fillable = how_->pads;
    for (const std::optional<T>& element : row) {
      if (!element) continue;
      ++have;
      fillable = fillable && detail::all_have_rows(detail::tensors_of(*element));
    }
    if (have == 0 || (have < row.size() && !fillable)) return {};
    return row;
  }

  /// The next one; empty at the end, and from then on.
  Row take_row() {
    if (ended_) return {};
    try {
      Row row = ahead_ ? ahead_->next().value_or(Row{}) : read_row();
      ended_ = row.empty();
      return row;
    } catch (...) {
      ++errors_;
      throw;
    }
  }

  /// Agrees with the other workers on whether there is a step and how large it is.
  std::optional<DistributedBatch<T>> meet(Row row) {
    detail::StepMeeting own{.workers = row.empty() ? 0 : 1, .errors = errors_};
    row.resize(how_->devices->size());
    std::vector<std::int64_t> rows(row.size(), 0);
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!row[i]) {
        own.lacking = 1;
        continue;
      }
      const Leaves leaves = detail::tensors_of(*row[i]);
      rows[i] = leaves.empty() || leaves.front().dim() == 0 ? 1 : leaves.front().size(0);
      own.rows += rows[i];
      if (!detail::all_have_rows(leaves)) {
        own.scalars = 1;
      } else if (how_->pads) {
        empty_ = detail::with_tensors(T(*row[i]), detail::slice_rows(leaves, 0, 0));
      }
    }
    own.unlearned = own.lacking > 0 && !empty_ ? 1 : 0;
    const detail::StepMeeting all = detail::meet(how_->options.workers, own);
    if (all.workers < (how_->pads ? 1 : how_->options.workers.count)) {
      ended_ = true;  // for all of them
      return std::nullopt;
    }
    if (all.lacking > 0 && all.scalars > 0) detail::no_empty_element();
    if (all.unlearned > 0) learn();
    std::vector<T> values;
    for (std::size_t i = 0; i < row.size(); ++i) {
      values.push_back(row[i] ? std::move(*row[i]) : nothing(static_cast<int>(i)));
    }
    ++position_.delivered;
    position_.errors = static_cast<std::uint64_t>(all.errors);
    return DistributedBatch<T>(std::move(values), how_->devices, std::move(rows), all.rows);
  }

  /// A worker without a single element learns from the others what an empty one looks like.
  void learn() {
    if constexpr (detail::has_shape<T>()) {
      detail::ShapeWriter own;
      if (empty_) detail::write_shape(*empty_, own);
      const std::vector<std::int64_t> words =
          detail::first_shape(how_->options.workers, own.words());
      detail::ShapeReader shape(words);
      if (!empty_ && !words.empty()) empty_ = detail::read_shape<T>(shape);
      if (!empty_) detail::no_empty_element();
    } else {
      detail::no_shape_of(typeid(T));  // on every worker: nobody goes on alone
    }
  }
  /// A batch without rows, of the kind that others have.
  T nothing(int replica) const {
    return detail::with_tensors(
        T(*empty_), detail::to_replica(*how_->core, replica, detail::tensors_of(*empty_)));
  }

  using Leaves = detail::Leaves;
  std::shared_ptr<const detail::Distribution> how_;
  DatasetPosition position_;
  std::vector<detail::StreamPtr<T>> streams_;
  Row begun_;  // elements of a step that is not whole yet
  std::optional<T> empty_;
  std::optional<Row> waiting_;  // taken, but not yet agreed on
  std::int64_t errors_ = 0;     // that came out
  bool ended_ = false;
  std::optional<detail::Ahead<Row>> ahead_;  // ends first
};

template <class T>
class DistributedDataset {
 public:
  using value_type = DistributedBatch<T>;

  /// One stream for all replicas, or one for each.
  DistributedDataset(std::vector<detail::StageOfPtr<T>> streams, detail::Distribution how)
      : streams_(std::make_shared<const std::vector<detail::StageOfPtr<T>>>(std::move(streams))),
        how_(std::make_shared<const detail::Distribution>(std::move(how))),
        passes_(std::make_shared<std::atomic<std::uint64_t>>(0)) {}

  /// The next pass over the data, or the rest of one that stood at `position`.
  [[nodiscard]] std::unique_ptr<DistributedIterator<T>> iterate() const {
    return begin_at({passes_->fetch_add(1), 0, how_->fingerprint});
  }
  [[nodiscard]] std::unique_ptr<DistributedIterator<T>> iterate_from(
      const DatasetPosition& position) const {
    detail::require_same_pipeline(position, how_->fingerprint, explain());
    passes_->store(position.pass + 1);
    return begin_at(position);
  }

  using Iterator = detail::ElementIterator<DistributedIterator<T>>;
  [[nodiscard]] Iterator begin() const { return Iterator(iterate()); }
  [[nodiscard]] Iterator end() const { return {}; }

  /// Steps of a pass, which are the same on all workers; kInfinite or kUnknownCardinality.
  [[nodiscard]] std::int64_t cardinality() const {
    return how_->steps ? *how_->steps
                       : detail::steps_of(*streams_, how_->devices->size(), how_->pads);
  }
  /// What each local replica gets. With several workers a batch may always be short.
  [[nodiscard]] std::vector<ElementSpec> element_spec() const {
    std::vector<ElementSpec> specs;
    for (std::size_t i = 0; i < how_->devices->size(); ++i) {
      ElementSpec spec = (*streams_)[streams_->size() == 1 ? 0 : i]->spec();
      if (how_->options.workers.count > 1)
        spec = detail::with_rows(std::move(spec), kUnknownLength);
      specs.push_back(std::move(spec));
    }
    return specs;
  }
  /// Who reads what and why, and the pipeline of this process.
  [[nodiscard]] std::string explain() const {
    return how_->explanation + detail::explain(*streams_->front());
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
  [[nodiscard]] std::unique_ptr<DistributedIterator<T>> begin_at(DatasetPosition position) const {
    return std::make_unique<DistributedIterator<T>>(*streams_, how_, position);
  }

  std::shared_ptr<const std::vector<detail::StageOfPtr<T>>> streams_;
  std::shared_ptr<const detail::Distribution> how_;
  std::shared_ptr<std::atomic<std::uint64_t>> passes_;
};

// --- templates ---------------------------------------------------------------------------------

namespace detail {

Distribution make_distribution(Strategy& strategy, const char* method, const InputOptions& options,
                               bool from_function, Here here);

enum class Elements { batches, anything };
/// choose_sharding() of all workers together. Mismatch naming the first difference if the workers
/// divide a dataset differently, do not read the same files or have other stages: rows would be
/// read twice and others never. What is wrong on every worker is thrown as it is.
ShardChoice choose_together(Distribution& how, const StagePtr& stage, Elements elements);

/// Agrees with the other workers on a fingerprint of all their pipelines, on the steps of a pass
/// and on whether steps are filled up (`pads`), whatever each reads. All workers together.
void agree_on_pipelines(Distribution& how, std::uint64_t own_fingerprint, std::int64_t own_steps);

/// The pipeline that one worker runs.
template <class T>
StageOfPtr<T> worker_stage(const StageOfPtr<T>& stage, Distribution& how) {
  const InputWorkers& workers = how.options.workers;
  const auto local = static_cast<int>(how.devices->size());
  const int replicas = workers.count * local;
  const ShardChoice choice =
      choose_together(how, stage, replicas > 1 ? Elements::batches : Elements::anything);
  how.explanation += "workers: " + choice.why + "\n";
  StageOfPtr<T> own = as_stage_of<T>(choice.stage);
  if (replicas == 1) {
    how.explanation += "replicas: one, which takes every batch whole\n";
    return own;
  }
  const std::string all = std::to_string(replicas);
  if (choice.by == Sharding::data || workers.count == 1) {
    how.explanation += "replicas: every batch in " + all +
                       " slices whose sizes differ by at most one" +
                       (workers.count > 1 ? ", dealt out among the workers\n" : "\n");
    return std::make_shared<SplitStage<T>>(own, replicas, workers.index, workers.count);
  }
  // A worker's part of a step is less than a batch.
  if (const auto global = known_batch_size(*stage)) {
    how.explanation += "replicas: batches of " + std::to_string(*global) + " rows over " + all +
                       " replicas, cut anew to sizes that differ by at most one\n";
    return std::make_shared<RebatchStage<T>>(
        own, batch_sizes(*global, workers.count, workers.index, local), how.devices->size());
  }
  how.explanation += "replicas: every batch in " + all +
                     " slices, since its size is not known before it is made\n";
  return std::make_shared<SplitStage<T>>(own, replicas);
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
                                           const InputOptions& options, Here here) {
  static_assert(!std::is_same_v<B, batching::PerReplica>,
                "lockstep: distribute() divides global batches; say batch(GlobalBatch{..}), or use "
                "distribute_from_function() for batches of one replica");
  static_assert(
      detail::IsTensorNest<T>::value,
      "lockstep: distribute() takes a dataset of nests of tensors; map() it first. A struct "
      "is one once it names its members: static auto lockstep_members() { return "
      "std::tuple(&Batch::image, &Batch::label); }");
  detail::Distribution how = detail::make_distribution(*this, "distribute", options, false, here);
  const detail::StageOfPtr<T> own = detail::worker_stage(dataset.stage(), how);
  how.pads = detail::can_pad(*own, how.options.workers.count);
  how.fingerprint = detail::fingerprint(*dataset.stage());
  // Divided by data, all workers read the same elements, and a step is one batch for any of them.
  if (how.options.workers.count > 1 && how.sharding != detail::Sharding::data) {
    const std::int64_t steps = detail::steps_of<T>({own}, how.devices->size(), how.pads);
    detail::agree_on_pipelines(how, how.fingerprint, steps);
  }
  return {{own}, std::move(how)};
}

template <class F>
auto Strategy::distribute_from_function(F&& fn, const InputOptions& options, Here here) {
  using D = std::remove_cvref_t<std::invoke_result_t<F&, const InputContext&>>;
  using T = typename D::value_type;
  static_assert(!std::is_same_v<typename D::batching_type, batching::Global>,
                "lockstep: every replica takes whole elements of this dataset; say "
                "batch(PerReplicaBatch{..}), or give global batches to distribute()");
  static_assert(
      detail::IsTensorNest<T>::value,
      "lockstep: the dataset must be one of nests of tensors; map() it first. A struct is "
      "one once it names its members: static auto lockstep_members() { return "
      "std::tuple(&Batch::image, &Batch::label); }");
  detail::Distribution how =
      detail::make_distribution(*this, "distribute_from_function", options, true, here);
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
  std::uint64_t own = 0;
  for (const auto& stream : streams) own = detail::mix(own, detail::fingerprint(*stream));
  detail::agree_on_pipelines(how, own,
                             detail::steps_of(streams, static_cast<std::size_t>(local), how.pads));
  return DistributedDataset<T>(std::move(streams), std::move(how));
}

}  // namespace lockstep
