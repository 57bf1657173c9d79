// Stages that call a function for every element, and stages that work ahead.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "lockstep/detail/ahead.h"
#include "lockstep/detail/background.h"
#include "lockstep/detail/stage.h"
#include "lockstep/detail/stage_transforms.h"

namespace lockstep::detail {

template <class T, class U>
class MapStage final : public Transform<MapStage<T, U>, T, U> {
 public:
  using Function = std::function<U(const T&)>;
  MapStage(StageOfPtr<T> input, Function fn, int parallel)
      : Transform<MapStage, T, U>(std::move(input)), fn_(std::move(fn)), parallel_(parallel) {}
  [[nodiscard]] std::string describe() const override {
    return parallel_ > 1 ? "map(" + std::to_string(parallel_) + " at a time)" : "map";
  }
  [[nodiscard]] std::string signature() const override { return "map"; }
  [[nodiscard]] std::int64_t cardinality() const override { return this->input().cardinality(); }
  [[nodiscard]] StreamPtr<U> open(const Opening& opening) const override {
    if (parallel_ > 1) {
      return std::make_unique<Parallel>(this->input().open(opening), fn_, parallel_);
    }
    return std::make_unique<Mapped>(this->input().open(opening), fn_);
  }

 private:
  class Mapped final : public Stream<U> {
   public:
    Mapped(StreamPtr<T> input, Function fn) : input_(std::move(input)), fn_(std::move(fn)) {}
    std::optional<U> next() override {
      const std::optional<T> element = input_->next();
      if (!element) return std::nullopt;
      return fn_(*element);
    }
    Skipped skip(std::uint64_t count, Skip how) override { return input_->skip(count, how); }

   private:
    StreamPtr<T> input_;
    Function fn_;
  };

  /// Elements are read by the consumer and worked on by the pool; they leave in order.
  class Parallel final : public Stream<U> {
   public:
    Parallel(StreamPtr<T> input, Function fn, int threads)
        : input_(std::move(input)),
          fn_(std::make_shared<const Function>(std::move(fn))),
          ahead_(2 * static_cast<std::size_t>(threads)),
          pool_(threads) {}
    std::optional<U> next() override {
      fill();
      if (waiting_.empty()) return std::nullopt;
      const Waiting first = std::move(waiting_.front());
      waiting_.pop_front();
      if (first.job) pool_.wait_for(*first.job);
      return std::move(*first.outcome).get();
    }
    Skipped skip(std::uint64_t count, Skip how) override {
      if (!waiting_.empty()) return Stream<U>::skip(count, how);
      return ended_ ? Skipped{} : input_->skip(count, how);
    }

   private:
    struct Waiting {
      std::shared_ptr<WorkerPool::Job> job;  // none: there was an error before it
      std::shared_ptr<Outcome<U>> outcome;
    };

    void fill() {
      while (!ended_ && waiting_.size() < ahead_) {
        auto outcome = std::make_shared<Outcome<U>>();
        auto read = Outcome<T>::of([&] { return input_->next(); });
        if (read.error) {
          outcome->error = read.error;
          waiting_.push_back({nullptr, std::move(outcome)});
        } else if (!read.element) {
          ended_ = true;
        } else {
          waiting_.push_back({pool_.submit([outcome, fn = fn_, element = std::move(*read.element)] {
                                *outcome = Outcome<U>::of([&] { return (*fn)(element); });
                              }),
                              outcome});
        }
      }
    }

    StreamPtr<T> input_;
    std::shared_ptr<const Function> fn_;
    std::size_t ahead_;
    bool ended_ = false;
    std::deque<Waiting> waiting_;
    WorkerPool pool_;  // ends first
  };

  Function fn_;
  int parallel_;
};

template <class T>
class PrefetchStage final : public PassThrough<PrefetchStage<T>, T> {
 public:
  PrefetchStage(StageOfPtr<T> input, std::size_t ahead)
      : PassThrough<PrefetchStage, T>(std::move(input)), ahead_(ahead) {}
  [[nodiscard]] std::string describe() const override {
    return "prefetch(" + std::to_string(ahead_) + ")";
  }
  [[nodiscard]] std::string signature() const override { return ""; }
  [[nodiscard]] StreamPtr<T> open(const Opening& opening) const override {
    return std::make_unique<Prefetched>(this->input().open(opening), ahead_);
  }

 private:
  class Prefetched final : public Stream<T> {
   public:
    Prefetched(StreamPtr<T> input, std::size_t ahead) : input_(std::move(input)), count_(ahead) {}
    std::optional<T> next() override {
      // Begins with the first element asked for: what is skipped before need not be made.
      if (!ahead_) ahead_.emplace(count_, [this] { return input_->next(); });
      return ahead_->next();
    }
    Skipped skip(std::uint64_t count, Skip how) override {
      return ahead_ ? Stream<T>::skip(count, how) : input_->skip(count, how);
    }

   private:
    StreamPtr<T> input_;
    std::size_t count_;
    std::optional<Ahead<T>> ahead_;  // ends first
  };

  std::size_t ahead_;
};

}  // namespace lockstep::detail
