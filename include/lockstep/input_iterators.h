// Input by its older names: iterators that are initialized, functions that make input, whole
// elements for every tower. What they do stands in distributed_dataset.h; names, arguments and
// results are translated.
//
//   auto input = strategy.make_dataset_iterator(dataset.batch(GlobalBatch{64}));
//   input.initialize();
//   auto losses = strategy.experimental_run(step, input);       // step(batch), the next one
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/coll/work.h"
#include "lockstep/distributed_dataset.h"
#include "lockstep/distribution_strategy.h"

namespace lockstep {

namespace detail {
[[noreturn]] void not_initialized();
[[noreturn]] void only_once();
/// The message of an error of distribute(), with what else there is.
[[noreturn]] void cannot_make_dataset_iterator(const InvalidUsage& why);
void require_per_worker(InputReplicationMode mode);
}  // namespace detail

/// Gives one batch after the other. Copies share their place in the data.
template <class T>
class InputIterator {
 public:
  using Next = std::function<DistributedBatch<T>()>;
  enum class Starts { at_once, when_initialized, at_once_and_only };

  /// restart() gives a function that gives the batches of a new pass.
  InputIterator(std::function<Next()> restart, Starts starts)
      : state_(std::make_shared<State>(State{std::move(restart), {}, starts})) {
    if (starts != Starts::when_initialized) state_->next = state_->restart();
  }

  /// Starts anew. There is nothing left to be run.
  std::vector<coll::Work> initialize() {
    if (state_->starts == Starts::at_once_and_only) detail::only_once();
    state_->next = state_->restart();
    return {};
  }
  /// EndOfData at the end; InvalidUsage if it has to be initialized first.
  DistributedBatch<T> get_next() {
    if (!state_->next) detail::not_initialized();
    return state_->next();
  }

 private:
  struct State {
    std::function<Next()> restart;
    Next next;
    Starts starts;
  };
  std::shared_ptr<State> state_;
};

/// What distribute_dataset() gives: whole elements for every tower, an incomplete last round is
/// dropped.
template <class T>
class PerDeviceDataset {
 public:
  explicit PerDeviceDataset(DistributedDataset<T> dataset) : dataset_(std::move(dataset)) {}
  [[nodiscard]] InputIterator<T> make_one_shot_iterator() const {
    return make(InputIterator<T>::Starts::at_once_and_only);
  }
  [[nodiscard]] InputIterator<T> make_initializable_iterator() const {
    return make(InputIterator<T>::Starts::when_initialized);
  }
  [[nodiscard]] const DistributedDataset<T>& dataset() const noexcept { return dataset_; }

 private:
  [[nodiscard]] InputIterator<T> make(typename InputIterator<T>::Starts starts) const;
  DistributedDataset<T> dataset_;
};

// --- templates ---------------------------------------------------------------------------------

namespace detail {

template <class T>
std::function<typename InputIterator<T>::Next()> restarting(DistributedDataset<T> dataset) {
  return [dataset = std::move(dataset)] {
    return [iterator = std::shared_ptr<DistributedIterator<T>>(dataset.iterate())] {
      return iterator->get_next();
    };
  };
}

/// Whole elements for every replica, and only whole rounds of them.
template <class T>
DistributedDataset<T> whole_rounds(StageOfPtr<T> stage, Distribution how) {
  how.pads = false;
  how.explanation +=
      "replicas: each takes the next element, whole; an incomplete round is dropped\n";
  agree_on_pipelines(how, fingerprint(*stage), steps_of<T>({stage}, how.devices->size(), how.pads));
  return {{std::move(stage)}, std::move(how)};
}

/// The nest that make_numpy_dataset() slices: a list of arrays is one array.
template <class T>
auto numpy_nest(const T& nest) {
  if constexpr (std::is_same_v<T, std::vector<Tensor>>) {
    std::vector<Leaves> rows;
    for (const Tensor& tensor : nest) rows.push_back({tensor});
    return stack_rows(rows).front();
  } else {
    Leaves copies;
    for (const Tensor& tensor : tensors_of(nest)) copies.push_back(tensor.detach().clone());
    return with_tensors(T(nest), copies);
  }
}

}  // namespace detail

template <class T>
InputIterator<T> PerDeviceDataset<T>::make(typename InputIterator<T>::Starts starts) const {
  return {detail::restarting(dataset_), starts};
}

template <class T, class B>
InputIterator<T> Strategy::make_dataset_iterator(const Dataset<T, B>& dataset,
                                                 const InputOptions& options, Here here) {
  try {
    return {detail::restarting(distribute(dataset, options, here)),
            InputIterator<T>::Starts::at_once};
  } catch (const InvalidUsage& why) {
    detail::cannot_make_dataset_iterator(why);
  }
}

template <class F>
auto Strategy::make_input_fn_iterator(F&& fn, InputReplicationMode mode,
                                      const InputOptions& options, Here here) {
  detail::require_per_worker(mode);
  detail::Distribution how =
      detail::make_distribution(*this, "make_input_fn_iterator", options, true, here);
  const auto local = static_cast<int>(how.devices->size());
  const InputContext context{how.options.workers.count, how.options.workers.index,
                             local * how.options.workers.count};
  auto input = fn(context);
  using Input = decltype(input);
  if constexpr (requires { input.stage(); }) {
    using T = typename Input::value_type;
    return InputIterator<T>(detail::restarting(detail::whole_rounds(input.stage(), std::move(how))),
                            InputIterator<T>::Starts::at_once);
  } else {
    static_assert(std::is_invocable_v<Input&>,
                  "lockstep: an input function gives a Dataset, or something to call for each "
                  "replica's input");
    using T = std::remove_cvref_t<std::invoke_result_t<Input&>>;
    // Never ends, so there is nothing to start anew: the same calls go on.
    auto call = std::make_shared<Input>(std::move(input));
    const auto next = [call, devices = how.devices, core = how.core,
                       workers = how.options.workers] {
      std::vector<T> values;
      std::vector<std::int64_t> rows;
      std::int64_t all = 0;
      for (std::size_t i = 0; i < devices->size(); ++i) {
        T value = (*call)();
        const detail::Leaves leaves =
            detail::to_replica(*core, static_cast<int>(i), detail::tensors_of(value));
        values.push_back(detail::with_tensors(std::move(value), leaves));
        rows.push_back(leaves.empty() || leaves.front().dim() == 0 ? 1 : leaves.front().size(0));
        all += rows.back();
      }
      if (workers.count > 1) workers.sum(std::span(&all, 1));
      return DistributedBatch<T>(std::move(values), devices, std::move(rows), all);
    };
    return InputIterator<T>([next] { return next; }, InputIterator<T>::Starts::at_once);
  }
}

template <class N>
auto Strategy::make_numpy_dataset(const N& nest) {
  detail::require_cross(*this, "make_numpy_dataset");
  return data::from_tensor_slices(detail::numpy_nest(nest));
}

template <class F, class T>
auto Strategy::experimental_run(F&& fn, InputIterator<T>& input) {
  const Scope inside = scope();
  return run(fn, input.get_next());
}

template <class F>
auto DistributionStrategy::distribute_dataset(F&& dataset_fn, const InputOptions& options,
                                              Here here) const {
  const auto dataset = dataset_fn();
  using T = typename std::remove_cvref_t<decltype(dataset)>::value_type;
  detail::Distribution how =
      detail::make_distribution(*strategy_, "distribute_dataset", options, false, here);
  const detail::ShardChoice choice =
      detail::choose_together(how, dataset.stage(), detail::Elements::anything);
  how.explanation = "workers: " + choice.why + "\n";
  const detail::StagePtr own =
      choice.by == detail::Sharding::data
          ? choice.stage->sharded(how.options.workers.count, how.options.workers.index)
          : choice.stage;
  return PerDeviceDataset<T>(detail::whole_rounds(detail::as_stage_of<T>(own), std::move(how)));
}

}  // namespace lockstep
