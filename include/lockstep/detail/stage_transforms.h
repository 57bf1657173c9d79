// Stages that pass on, leave out or reorder the elements of their input.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>

#include "lockstep/detail/stage.h"
#include "lockstep/detail/tensors_in.h"

namespace lockstep::detail {

/// The same elements of the same kind: what most stages say about themselves.
template <class Self, class T>
class PassThrough : public Transform<Self, T, T> {
 public:
  using Transform<Self, T, T>::Transform;
  [[nodiscard]] bool keeps_batches() const noexcept override { return true; }
  [[nodiscard]] std::optional<ElementSpec> static_spec() const override {
    return this->input().static_spec();
  }
  [[nodiscard]] ElementSpec spec() const override { return this->input().spec(); }
  [[nodiscard]] std::int64_t cardinality() const override { return this->input().cardinality(); }
  [[nodiscard]] std::int64_t batched_rows() const override { return this->input().batched_rows(); }
};

template <class T>
class FilterStage final : public PassThrough<FilterStage<T>, T> {
 public:
  FilterStage(StageOfPtr<T> input, std::function<bool(const T&)> keep)
      : PassThrough<FilterStage, T>(std::move(input)), keep_(std::move(keep)) {}
  [[nodiscard]] std::string describe() const override { return "filter"; }
  [[nodiscard]] std::int64_t cardinality() const override {
    return this->input().cardinality() == 0 ? 0 : kUnknownCardinality;
  }
  [[nodiscard]] std::int64_t batched_rows() const override { return cardinality(); }
  [[nodiscard]] StreamPtr<T> open(const Opening& opening) const override {
    return std::make_unique<Kept>(this->input().open(opening), keep_);
  }

 private:
  class Kept final : public Stream<T> {
   public:
    Kept(StreamPtr<T> input, std::function<bool(const T&)> keep)
        : input_(std::move(input)), keep_(std::move(keep)) {}
    std::optional<T> next() override {
      for (;;) {
        std::optional<T> element = input_->next();
        if (!element || keep_(*element)) return element;
      }
    }

   private:
    StreamPtr<T> input_;
    std::function<bool(const T&)> keep_;
  };

  std::function<bool(const T&)> keep_;
};

/// Numbers that are the same everywhere, unlike those of the standard's distributions.
class Randomness {
 public:
  explicit Randomness(std::uint64_t seed) noexcept : state_(seed) {}
  /// Below `bound`, all equally likely as far as anybody can see.
  std::uint64_t below(std::uint64_t bound) noexcept;

 private:
  std::uint64_t state_;
};

template <class T>
class ShuffleStage final : public PassThrough<ShuffleStage<T>, T> {
 public:
  ShuffleStage(StageOfPtr<T> input, std::size_t buffer, std::uint64_t seed, bool each_pass)
      : PassThrough<ShuffleStage, T>(std::move(input)),
        buffer_(buffer),
        seed_(seed),
        each_pass_(each_pass) {}
  [[nodiscard]] std::string describe() const override {
    return "shuffle(" + std::to_string(buffer_) + ", seed " + std::to_string(seed_) +
           (each_pass_ ? ")" : ", the same each time)");
  }
  [[nodiscard]] bool shuffles() const noexcept override { return true; }
  [[nodiscard]] StreamPtr<T> open(const Opening& opening) const override {
    return std::make_unique<Shuffled>(this->input().open(opening), buffer_,
                                      each_pass_ ? mix(seed_, opening.pass) : seed_);
  }

 private:
  /// Keeps a buffer and gives one of it at random, in whose place the next comes.
  class Shuffled final : public Stream<T> {
   public:
    Shuffled(StreamPtr<T> input, std::size_t size, std::uint64_t seed)
        : input_(std::move(input)), size_(size), random_(seed) {}
    std::optional<T> next() override {
      while (input_ && buffer_.size() < size_) {
        std::optional<T> element = input_->next();
        if (!element) {
          input_.reset();
        } else {
          buffer_.push_back(std::move(*element));
        }
      }
      if (buffer_.empty()) return std::nullopt;
      std::swap(buffer_[random_.below(buffer_.size())], buffer_.back());
      std::optional<T> element = std::move(buffer_.back());
      buffer_.pop_back();
      return element;
    }

   private:
    StreamPtr<T> input_;
    std::size_t size_;
    Randomness random_;
    std::vector<T> buffer_;
  };

  std::size_t buffer_;
  std::uint64_t seed_;
  bool each_pass_;
};

template <class T>
class RepeatStage final : public PassThrough<RepeatStage<T>, T> {
 public:
  /// kInfinite: for ever.
  RepeatStage(StageOfPtr<T> input, std::int64_t times)
      : PassThrough<RepeatStage, T>(std::move(input)), times_(times) {}
  [[nodiscard]] std::string describe() const override {
    return times_ == kInfinite ? "repeat()" : "repeat(" + std::to_string(times_) + ")";
  }
  [[nodiscard]] std::int64_t cardinality() const override {
    return repeated(this->input().cardinality());
  }
  [[nodiscard]] std::int64_t batched_rows() const override {
    return repeated(this->input().batched_rows());
  }
  [[nodiscard]] StreamPtr<T> open(const Opening& opening) const override {
    return std::make_unique<Repeated>(
        std::static_pointer_cast<const RepeatStage>(this->shared_from_this()), opening);
  }

 private:
  [[nodiscard]] std::int64_t repeated(std::int64_t once) const {
    if (times_ == 0 || once == 0) return 0;
    if (times_ == kInfinite && once != kUnknownCardinality) return kInfinite;
    return once < 0 ? once : once * times_;
  }

  class Repeated final : public Stream<T> {
   public:
    Repeated(std::shared_ptr<const RepeatStage> stage, const Opening& opening)
        : stage_(std::move(stage)), opening_(opening) {}
    std::optional<T> next() override {
      while (stage_->times_ == kInfinite || round_ < stage_->times_) {
        open();
        if (std::optional<T> element = input_->next()) {
          any_ = true;
          return element;
        }
        if (!close()) break;
      }
      return std::nullopt;
    }
    Skipped skip(std::uint64_t count, Skip how) override {
      Skipped skipped;
      while (skipped.places < count && (stage_->times_ == kInfinite || round_ < stage_->times_)) {
        open();
        const Skipped now = input_->skip(count - skipped.places, how);
        skipped.add(now);
        any_ = any_ || now.places > 0;
        if (skipped.places < count && !close()) break;
      }
      return skipped;
    }

   private:
    void open() {
      if (input_) return;
      const auto round = static_cast<std::uint64_t>(round_);
      input_ = stage_->input().open({round == 0 ? opening_.pass : mix(opening_.pass, round)});
      any_ = false;
    }
    /// False if it was empty: it would be again, for ever.
    bool close() {
      input_.reset();
      ++round_;
      return any_;
    }

    std::shared_ptr<const RepeatStage> stage_;
    Opening opening_;
    StreamPtr<T> input_;
    std::int64_t round_ = 0;
    bool any_ = false;
  };

  std::int64_t times_;
};

/// Elements begin, begin + step, ... of the input, `most` of them: take, skip and shard.
template <class T>
class EveryStage final : public PassThrough<EveryStage<T>, T> {
 public:
  EveryStage(StageOfPtr<T> input, std::int64_t begin, std::int64_t step, std::int64_t most,
             std::string text)
      : PassThrough<EveryStage, T>(std::move(input)),
        begin_(begin),
        step_(step),
        most_(most),
        text_(std::move(text)) {}
  [[nodiscard]] std::string describe() const override { return text_; }
  [[nodiscard]] std::int64_t cardinality() const override {
    const std::int64_t all = this->input().cardinality();
    if (all == kInfinite) return most_;
    if (all == kUnknownCardinality) return all;
    const std::int64_t left = all > begin_ ? (all - begin_ + step_ - 1) / step_ : 0;
    return most_ == kInfinite ? left : std::min(left, most_);
  }
  [[nodiscard]] std::int64_t batched_rows() const override {
    return cardinality() == 0 ? 0 : kUnknownCardinality;
  }
  [[nodiscard]] StreamPtr<T> open(const Opening& opening) const override {
    return std::make_unique<Every>(this->input().open(opening), begin_, step_, most_);
  }

 private:
  class Every final : public Stream<T> {
   public:
    Every(StreamPtr<T> input, std::int64_t begin, std::int64_t step, std::int64_t most)
        : input_(std::move(input)), gap_(begin), step_(step), left_(most) {}
    std::optional<T> next() override {
      if (left_ == 0) return std::nullopt;
      // A file that is lost in the gap may hide any number of elements: an error here too. The gap
      // counts as passed, so every worker that takes a share still counts the same places.
      pass_gap(Skip::exactly).require_files();
      if (left_ == 0) return std::nullopt;
      if (left_ > 0) --left_;
      gap_ = step_ - 1;
      return input_->next();  // may throw: that is its place
    }
    Skipped skip(std::uint64_t count, Skip how) override {
      Skipped all;
      while (all.places < count && left_ != 0) {
        Skipped gap = pass_gap(how);
        if (gap.lost_files > 0) {  // a place of its own, as for next()
          gap.places = 1;
          all.add(gap);
          continue;
        }
        if (left_ == 0) break;
        std::uint64_t most = step_ == 1 ? count - all.places : 1;
        if (left_ > 0) most = std::min(most, static_cast<std::uint64_t>(left_));
        const Skipped passed = input_->skip(most, how);
        all.add(passed);
        left_ =
            passed.places < most ? 0 : left_ - (left_ > 0 ? static_cast<std::int64_t>(most) : 0);
        gap_ = step_ - 1;
      }
      return all;
    }

   private:
    Skipped pass_gap(Skip how) {
      const auto gap = static_cast<std::uint64_t>(left_ == 0 ? 0 : std::exchange(gap_, 0));
      const Skipped passed = gap == 0 ? Skipped{} : input_->skip(gap, how);
      if (passed.places < gap) left_ = 0;
      return passed;
    }

    StreamPtr<T> input_;
    std::int64_t gap_;
    std::int64_t step_;
    std::int64_t left_;
  };

  std::int64_t begin_;
  std::int64_t step_;
  std::int64_t most_;
  std::string text_;
};

template <class T>
StagePtr StageOf<T>::sharded(std::int64_t count, std::int64_t index) const {
  return std::make_shared<EveryStage<T>>(
      std::static_pointer_cast<const StageOf<T>>(this->shared_from_this()), index, count, kInfinite,
      "shard(" + std::to_string(count) + ", " + std::to_string(index) + ")");
}

/// A copy whose tensors share no memory with those of `element`.
template <class T>
T copy_of(const T& element) {
  T copy(element);
  for_each_tensor_in(copy, [](Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.clone();
  });
  return copy;
}

/// What the first whole pass gave, from memory. Every element that is given is a copy: programs
/// change tensors in place.
template <class T>
class CacheStage final : public PassThrough<CacheStage<T>, T> {
 public:
  explicit CacheStage(StageOfPtr<T> input)
      : PassThrough<CacheStage, T>(std::move(input)), cache_(std::make_shared<Cache>()) {}
  [[nodiscard]] std::string describe() const override { return "cache"; }
  [[nodiscard]] StagePtr with_inputs(const std::vector<StagePtr>& inputs) const override {
    return std::make_shared<CacheStage>(as_stage_of<T>(inputs.at(0)));  // other elements
  }
  [[nodiscard]] StreamPtr<T> open(const Opening&) const override {
    if (auto whole = cache_->get()) return std::make_unique<Replayed>(std::move(whole));
    // The first pass, whichever this one is: the same elements in every process.
    return std::make_unique<Recorded>(this->input().open({}), cache_);
  }

 private:
  using Elements = std::shared_ptr<const std::vector<T>>;
  struct Cache {
    std::mutex mutex;
    Elements elements;
    Elements get() {
      const std::lock_guard lock(mutex);
      return elements;
    }
    void set(std::vector<T> all) {
      const std::lock_guard lock(mutex);
      if (!elements) elements = std::make_shared<const std::vector<T>>(std::move(all));
    }
  };
  class Replayed final : public Stream<T> {
   public:
    explicit Replayed(Elements all) : all_(std::move(all)) {}
    std::optional<T> next() override {
      stop_if_asked();
      if (at_ == all_->size()) return std::nullopt;
      return copy_of((*all_)[at_++]);
    }
    Skipped skip(std::uint64_t count, Skip) override {
      count = std::min<std::uint64_t>(count, all_->size() - at_);
      at_ += count;
      return {count};
    }

   private:
    Elements all_;
    std::size_t at_ = 0;
  };
  class Recorded final : public Stream<T> {
   public:
    Recorded(StreamPtr<T> input, std::shared_ptr<Cache> cache)
        : input_(std::move(input)), cache_(std::move(cache)) {}
    std::optional<T> next() override {
      if (!input_) return std::nullopt;
      const bool before = std::exchange(whole_, false);  // not if an element cannot be made
      std::optional<T> element = input_->next();
      whole_ = before;
      if (element) {
        elements_.push_back(copy_of(*element));
      } else {
        input_.reset();
        if (whole_) cache_->set(std::move(elements_));
      }
      return element;
    }

   private:
    StreamPtr<T> input_;
    std::shared_ptr<Cache> cache_;
    std::vector<T> elements_;
    bool whole_ = true;
  };

  std::shared_ptr<Cache> cache_;
};

/// DataError: a dataset had another number of elements than was said.
[[noreturn]] void wrong_cardinality(std::int64_t expected, std::int64_t found, bool more);

template <class T>
class AssertCardinalityStage final : public PassThrough<AssertCardinalityStage<T>, T> {
 public:
  AssertCardinalityStage(StageOfPtr<T> input, std::int64_t expected)
      : PassThrough<AssertCardinalityStage, T>(std::move(input)), expected_(expected) {}
  [[nodiscard]] std::string describe() const override {
    return "assert_cardinality(" + std::to_string(expected_) + ")";
  }
  [[nodiscard]] std::int64_t cardinality() const override { return expected_; }
  [[nodiscard]] StreamPtr<T> open(const Opening& opening) const override {
    return std::make_unique<Counted>(this->input().open(opening), expected_);
  }

 private:
  class Counted final : public Stream<T> {
   public:
    Counted(StreamPtr<T> input, std::int64_t expected)
        : input_(std::move(input)), expected_(expected) {}
    std::optional<T> next() override {
      std::optional<T> element = input_->next();
      if (element && ++seen_ > expected_ && expected_ != kInfinite) {
        wrong_cardinality(expected_, seen_, true);
      }
      if (!element && (seen_ < expected_ || expected_ == kInfinite) &&
          !std::exchange(told_, true)) {
        wrong_cardinality(expected_, seen_, false);
      }
      return element;
    }

   private:
    StreamPtr<T> input_;
    std::int64_t expected_;
    std::int64_t seen_ = 0;
    bool told_ = false;
  };

  std::int64_t expected_;
};

template <class T>
class OptionsStage final : public PassThrough<OptionsStage<T>, T> {
 public:
  OptionsStage(StageOfPtr<T> input, AutoShardPolicy policy)
      : PassThrough<OptionsStage, T>(std::move(input)), policy_(policy) {}
  [[nodiscard]] std::string describe() const override {
    const int number = static_cast<int>(policy_);
    const char* const names[] = {"off", "automatic", "file", "data"};
    const bool known = number >= -1 && number <= 2;
    return std::string("options(auto_shard_policy ") +
           (known ? names[number + 1] : std::to_string(number).c_str()) + ")";
  }
  [[nodiscard]] std::optional<AutoShardPolicy> auto_shard_policy() const override {
    return policy_;
  }
  [[nodiscard]] StreamPtr<T> open(const Opening& opening) const override {
    return this->input().open(opening);
  }

 private:
  AutoShardPolicy policy_;
};

}  // namespace lockstep::detail
