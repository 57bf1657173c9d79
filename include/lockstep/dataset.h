// Dataset: where training data comes from. A lazy, typed pipeline over elements that are nests of
// tensors (or, at its beginning, anything else); every iteration runs through it anew.
//
//   struct Example {
//     Tensor image, label;
//     static auto lockstep_members() { return std::tuple(&Example::image, &Example::label); }
//   };
//   auto train = data::tfrecord("train-*.tfrecord")
//                    .map(decode, Parallel{4})                   // Example decode(const
//                    std::string&) .shuffle(10'000, Seed{7}) .batch(GlobalBatch{256}) .prefetch(2);
//   for (const Example& batch : train) ...
//   std::cout << train.explain();
//
// A dataset is a value: copying it is cheap, transforming it makes another. An exception in any
// stage comes out at its place in the stream; the element after it can still be asked for.
//
// Threads: a dataset may be iterated by several threads at once, each with an iterator of its own.
// Functions given to map(.., Parallel) are called by several threads at once.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/detail/element_iterator.h"
#include "lockstep/detail/stage_batch.h"
#include "lockstep/detail/stage_combine.h"
#include "lockstep/detail/stage_map.h"
#include "lockstep/detail/stage_sources.h"
#include "lockstep/detail/stage_transforms.h"
#include "lockstep/error.h"

namespace lockstep {

/// Rows of a whole step, over all replicas of all workers: for strategy.distribute().
struct GlobalBatch {
  std::int64_t rows;
};
/// Rows of one replica's step: for strategy.distribute_from_function().
struct PerReplicaBatch {
  std::int64_t rows;
};

/// What a batch of a dataset is meant to be, as part of its type.
namespace batching {
struct Unsaid {};
struct Global {};
struct PerReplica {};
}  // namespace batching

struct Seed {
  std::uint64_t value;
};
enum class Reshuffle { each_iteration, never };
struct Parallel {
  int calls;
};
enum class Remainder { keep, drop };

struct DatasetOptions {
  AutoShardPolicy auto_shard_policy = AutoShardPolicy::automatic;
};

struct InterleaveOptions {
  int cycle_length = 16;
  int block_length = 1;
};

struct PaddingOptions {
  /// One for each tensor, or none: as large as the largest of the batch, which
  /// kUnknownLength says for one length.
  std::vector<std::vector<std::int64_t>> shapes = {};
  double value = 0;
};

/// Where an iteration stands: enough to go on from there, in another process too.
struct DatasetPosition {
  std::uint64_t pass = 0;         // which iteration of the dataset
  std::uint64_t delivered = 0;    // places behind it: elements given and errors; steps, distributed
  std::uint64_t fingerprint = 0;  // of the pipeline
  std::uint64_t errors = 0;       // that came out before it; distributed: on all workers together

  [[nodiscard]] std::string to_string() const;
  /// ConfigError if it is no position.
  static DatasetPosition parse(const std::string& text);
  friend bool operator==(const DatasetPosition&, const DatasetPosition&) = default;
};

namespace detail {
/// InvalidUsage naming the method if a number is too small.
void require_at_least(const char* method, const char* what, std::int64_t value, std::int64_t least);
void require_shard(std::int64_t count, std::int64_t index);
/// InvalidUsage if the position is of another pipeline than the one explained.
void require_same_pipeline(const DatasetPosition& position, std::uint64_t fingerprint,
                           const std::string& explanation);
[[noreturn]] void position_beyond_end(const DatasetPosition& position, std::uint64_t found);
}  // namespace detail

/// One pass over a dataset. Belongs to one thread at a time; may outlive the dataset.
template <class T>
class DatasetIterator {
 public:
  DatasetIterator(detail::StageOfPtr<T> stage, DatasetPosition position)
      : stage_(std::move(stage)), position_(position), stream_(stage_->open({position.pass})) {
    const std::uint64_t before = position.delivered;
    if (before == 0) return;
    const detail::Skipped found =
        stream_->skip(before, position.errors == 0 ? detail::Skip::cheaply : detail::Skip::exactly);
    found.require_files(position.errors);
    if (found.places < before) detail::position_beyond_end(position, found.places);
  }

  /// The next element; none at the end.
  std::optional<T> next() {
    try {
      std::optional<T> element = stream_->next();
      if (element) ++position_.delivered;
      return element;
    } catch (...) {
      ++position_.delivered;  // its place is behind us
      ++position_.errors;
      throw;
    }
  }
  [[nodiscard]] const DatasetPosition& position() const noexcept { return position_; }

 private:
  detail::StageOfPtr<T> stage_;
  DatasetPosition position_;
  detail::StreamPtr<T> stream_;
};

template <class T, class Batching = batching::Unsaid>
class Dataset {
 public:
  using value_type = T;
  using batching_type = Batching;

  explicit Dataset(detail::StageOfPtr<T> stage)
      : stage_(std::move(stage)), passes_(std::make_shared<std::atomic<std::uint64_t>>(0)) {}

  // --- each element ---------------------------------------------------------------------------

  /// fn(element) of every element. In parallel: some calls at a time, in the order of the stream.
  template <class F>
  auto map(F fn, Parallel parallel = {1}) const {
    using U = std::remove_cvref_t<std::invoke_result_t<F&, const T&>>;
    detail::require_at_least("map", "calls in parallel", parallel.calls, 1);
    return make<U>(std::make_shared<detail::MapStage<T, U>>(stage_, std::move(fn), parallel.calls));
  }
  /// Only elements for which keep(element) is true.
  template <class F>
  Dataset filter(F keep) const {
    return next<detail::FilterStage<T>>(std::move(keep));
  }
  /// Pairs of a number, counting from `start`, and the element.
  [[nodiscard]] auto enumerate(std::int64_t start = 0) const;
  /// The elements of fn(element), a dataset, one dataset after the other.
  template <class F>
  auto flat_map(F fn) const {
    return interleave(std::move(fn), {.cycle_length = 1, .block_length = 1});
  }
  /// The same with several of those datasets open at a time, which take turns.
  template <class F>
  auto interleave(F fn, InterleaveOptions options = {}) const {
    using Inner = std::remove_cvref_t<std::invoke_result_t<F&, const T&>>;
    using U = typename Inner::value_type;
    detail::require_at_least("interleave", "cycle_length", options.cycle_length, 1);
    detail::require_at_least("interleave", "block_length", options.block_length, 1);
    return Dataset<U, typename Inner::batching_type>(
        std::make_shared<detail::InterleaveStage<T, U>>(
            stage_, [fn = std::move(fn)](const T& element) mutable { return fn(element).stage(); },
            static_cast<std::size_t>(options.cycle_length), options.block_length));
  }

  // --- order and number -----------------------------------------------------------------------

  /// In random order, as far as a buffer of so many elements allows; anew in every iteration and
  /// every round of repeat(). Equal seeds give equal orders.
  [[nodiscard]] Dataset shuffle(std::int64_t buffer, Seed seed,
                                Reshuffle reshuffle = Reshuffle::each_iteration) const {
    detail::require_at_least("shuffle", "buffer", buffer, 1);
    return next<detail::ShuffleStage<T>>(static_cast<std::size_t>(buffer), seed.value,
                                         reshuffle == Reshuffle::each_iteration);
  }
  /// So many times one after the other; for ever if no number is given.
  [[nodiscard]] Dataset repeat(std::int64_t times = kInfinite) const {
    detail::require_at_least("repeat", "times", times, kInfinite);
    return next<detail::RepeatStage<T>>(times);
  }
  /// The first `count` elements, or fewer; all of them if it is kInfinite.
  [[nodiscard]] Dataset take(std::int64_t count) const {
    detail::require_at_least("take", "count", count, kInfinite);
    return next<detail::EveryStage<T>>(0, 1, count, "take(" + std::to_string(count) + ")");
  }
  /// All but the first `count`.
  [[nodiscard]] Dataset skip(std::int64_t count) const {
    detail::require_at_least("skip", "count", count, 0);
    return next<detail::EveryStage<T>>(count, 1, kInfinite, "skip(" + std::to_string(count) + ")");
  }
  /// Elements index, index + count, index + 2 count, ...
  [[nodiscard]] Dataset shard(std::int64_t count, std::int64_t index) const {
    detail::require_shard(count, index);
    return Dataset(detail::as_stage_of<T>(stage_->sharded(count, index)));
  }
  [[nodiscard]] Dataset concatenate(const Dataset& other) const {
    return Dataset(std::make_shared<detail::ConcatenateStage<T>>(stage_, other.stage_));
  }
  /// DataError at the end of an iteration that had another number of elements.
  [[nodiscard]] Dataset assert_cardinality(std::int64_t count) const {
    return next<detail::AssertCardinalityStage<T>>(count);
  }

  // --- batches --------------------------------------------------------------------------------

  /// Puts elements together: every tensor gets a first dimension of so many rows, the last batch
  /// perhaps fewer. What the rows are meant to be (GlobalBatch, PerReplicaBatch) is remembered.
  [[nodiscard]] auto batch(GlobalBatch size, Remainder remainder = Remainder::keep) const {
    return batches<batching::Global>(size.rows, remainder, nullptr, " global");
  }
  [[nodiscard]] auto batch(PerReplicaBatch size, Remainder remainder = Remainder::keep) const {
    return batches<batching::PerReplica>(size.rows, remainder, nullptr, " per replica");
  }
  [[nodiscard]] auto batch(std::int64_t rows, Remainder remainder = Remainder::keep) const {
    return batches<batching::Unsaid>(rows, remainder, nullptr, "");
  }
  /// Of elements of different sizes: filled up at the end of every dimension.
  [[nodiscard]] auto padded_batch(GlobalBatch size, const PaddingOptions& padding = {},
                                  Remainder remainder = Remainder::keep) const {
    return batches<batching::Global>(size.rows, remainder, &padding, " global");
  }
  [[nodiscard]] auto padded_batch(PerReplicaBatch size, const PaddingOptions& padding = {},
                                  Remainder remainder = Remainder::keep) const {
    return batches<batching::PerReplica>(size.rows, remainder, &padding, " per replica");
  }
  [[nodiscard]] auto padded_batch(std::int64_t rows, const PaddingOptions& padding = {},
                                  Remainder remainder = Remainder::keep) const {
    return batches<batching::Unsaid>(rows, remainder, &padding, "");
  }
  /// Every row an element again.
  [[nodiscard]] auto unbatch() const {
    require_tensors();
    return Dataset<T>(std::make_shared<detail::UnbatchStage<T>>(stage_));
  }

  // --- how it is run --------------------------------------------------------------------------

  /// Keeps all elements of the first whole iteration in memory for the following ones, which are
  /// given copies.
  [[nodiscard]] Dataset cache() const { return next<detail::CacheStage<T>>(); }
  /// Makes so many elements ahead, on a thread of its own.
  [[nodiscard]] Dataset prefetch(std::int64_t ahead) const {
    detail::require_at_least("prefetch", "elements ahead", ahead, 1);
    return next<detail::PrefetchStage<T>>(static_cast<std::size_t>(ahead));
  }
  [[nodiscard]] Dataset with_options(const DatasetOptions& options) const {
    return next<detail::OptionsStage<T>>(options.auto_shard_policy);
  }

  // --- what it is -----------------------------------------------------------------------------

  /// Number of elements, kInfinite or kUnknownCardinality.
  [[nodiscard]] std::int64_t cardinality() const { return stage_->cardinality(); }
  /// What the tensors of an element look like. Behind a map() that is seen from the first element,
  /// which is made for it.
  [[nodiscard]] ElementSpec element_spec() const {
    require_tensors();
    return stage_->spec();
  }
  /// The pipeline in lines, the last stage first.
  [[nodiscard]] std::string explain() const { return detail::explain(*stage_); }

  /// The next pass over the data, or the rest of one that stood at `position`.
  [[nodiscard]] DatasetIterator<T> iterate() const {
    return {stage_, {passes_->fetch_add(1), 0, detail::fingerprint(*stage_)}};
  }
  [[nodiscard]] DatasetIterator<T> iterate_from(const DatasetPosition& position) const {
    detail::require_same_pipeline(position, detail::fingerprint(*stage_), explain());
    passes_->store(position.pass + 1);
    return {stage_, position};
  }

  using Iterator = detail::ElementIterator<DatasetIterator<T>>;
  [[nodiscard]] Iterator begin() const {
    return Iterator(std::make_shared<DatasetIterator<T>>(iterate()));
  }
  [[nodiscard]] Iterator end() const { return {}; }

  [[nodiscard]] const detail::StageOfPtr<T>& stage() const noexcept { return stage_; }

 private:
  template <class, class>
  friend class Dataset;

  static void require_tensors() {
    static_assert(detail::IsTensorNest<T>::value,
                  "lockstep: batches are made of tensors; map() the elements to a nest of tensors "
                  "first. A struct is one once it names its members: static auto "
                  "lockstep_members() { return std::tuple(&Example::image, &Example::label); }");
  }
  template <class S, class... Args>
  Dataset next(Args&&... args) const {
    return Dataset(std::make_shared<S>(stage_, std::forward<Args>(args)...));
  }
  template <class U>
  static Dataset<U, Batching> make(detail::StageOfPtr<U> stage) {
    return Dataset<U, Batching>(std::move(stage));
  }
  template <class B>
  auto batches(std::int64_t rows, Remainder remainder, const PaddingOptions* padding,
               const char* unit) const {
    require_tensors();
    detail::require_at_least("batch", "rows", rows, 1);
    auto stage =
        std::make_shared<detail::BatchStage<T>>(stage_, rows, remainder == Remainder::drop, unit);
    if (padding != nullptr) stage->pad(padding->shapes, padding->value);
    return Dataset<T, B>(std::move(stage));
  }

  detail::StageOfPtr<T> stage_;
  std::shared_ptr<std::atomic<std::uint64_t>> passes_;  // iterations begun
};

namespace data {

/// One element: the nest as it is.
template <class T>
Dataset<T> from_tensors(T nest) {
  return Dataset<T>(
      std::make_shared<detail::ListStage<T>>(std::vector<T>{std::move(nest)}, "from_tensors"));
}

/// One element for each row of the nest's tensors, which all have as many.
template <class T>
Dataset<T> from_tensor_slices(T nest) {
  auto leaves = std::make_shared<const detail::Leaves>(detail::tensors_of(nest));
  const std::int64_t rows = detail::rows_to_slice(*leaves);
  const auto row = [leaves, nest](std::int64_t i) {
    return detail::with_tensors(nest, detail::select_row(*leaves, i));
  };
  return Dataset<T>(std::make_shared<detail::IndexedStage<T>>(
      rows, row, detail::row_of(detail::spec_of(*leaves)),
      "from_tensor_slices(" + std::to_string(rows) + " rows)"));
}

/// A list of anything.
template <class T>
Dataset<T> from_list(std::vector<T> elements) {
  const std::string text = "from_list(" + std::to_string(elements.size()) + ")";
  return Dataset<T>(std::make_shared<detail::ListStage<T>>(std::move(elements), text));
}

/// begin, begin + step, ... below `end`, as tensors of int64.
Dataset<Tensor> range(std::int64_t begin, std::int64_t end, std::int64_t step = 1);
inline Dataset<Tensor> range(std::int64_t end) { return range(0, end); }

/// make() is called at the start of every iteration; what it returns gives the elements one by one,
/// an std::optional that is empty at the end.
template <class Make>
auto generator(Make make) {
  using T =
      typename std::remove_cvref_t<std::invoke_result_t<std::invoke_result_t<Make&>&>>::value_type;
  return Dataset<T>(std::make_shared<detail::GeneratorStage<T>>(std::move(make)));
}

/// Tuples of one element of each, as long as the shortest.
template <class... Ts, class... Bs>
auto zip(const Dataset<Ts, Bs>&... datasets) {
  using First = std::tuple_element_t<0, std::tuple<Bs...>>;
  constexpr bool same = (std::is_same_v<First, Bs> && ...);
  return Dataset<std::tuple<Ts...>, std::conditional_t<same, First, batching::Unsaid>>(
      std::make_shared<detail::ZipStage<Ts...>>(datasets.stage()...));
}

}  // namespace data

template <class T, class Batching>
auto Dataset<T, Batching>::enumerate(std::int64_t start) const {
  const auto numbers = Dataset<Tensor, Batching>(std::make_shared<detail::IndexedStage<Tensor>>(
      kInfinite, [start](std::int64_t i) { return detail::range_element(start + i); },
      ElementSpec{{at::kLong, {}}}, "count(from " + std::to_string(start) + ")"));
  return data::zip(numbers, *this);
}

}  // namespace lockstep
