// Stages that put rows together and cut them apart.
#pragma once

#include <algorithm>
#include <deque>

#include "lockstep/detail/stage.h"

namespace lockstep::detail {

/// DataError: the maps of one batch have different keys, or the same in another order.
[[noreturn]] void different_keys();

/// Whether tensors of both nests mean the same, one by one.
template <class T>
bool same_keys(const T& a, const T& b) {
  if constexpr (is_mapping<T>) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
      return x.first == y.first && same_keys(x.second, y.second);
    });
  } else if constexpr (is_sequence<T>) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const auto& x, const auto& y) { return same_keys(x, y); });
  } else if constexpr (is_optional<T>) {
    return a.has_value() == b.has_value() && (!a || same_keys(*a, *b));
  } else if constexpr (is_tuple<T>) {
    return [&]<std::size_t... is>(std::index_sequence<is...>) {
      return (same_keys(std::get<is>(a), std::get<is>(b)) && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (MemberNest<T>) {
    return std::apply([&](auto... members) { return (same_keys(a.*members, b.*members) && ...); },
                      T::lockstep_members());
  } else {
    return true;
  }
}

/// How `count` elements become one.
template <class T>
class BatchStage : public Transform<BatchStage<T>, T, T> {
 public:
  BatchStage(StageOfPtr<T> input, std::int64_t count, bool drop_remainder, std::string unit)
      : Transform<BatchStage, T, T>(std::move(input)),
        count_(count),
        drop_remainder_(drop_remainder),
        unit_(std::move(unit)) {}
  /// With every element as large as the largest of its batch.
  void pad(std::vector<std::vector<std::int64_t>> shapes, double value) {
    padded_ = true;
    shapes_ = std::move(shapes);
    padding_ = value;
  }

  [[nodiscard]] std::string describe() const override {
    return (padded_ ? "padded_batch(" : "batch(") + std::to_string(count_) + unit_ +
           (drop_remainder_ ? ", drop_remainder)" : ")");
  }
  [[nodiscard]] std::optional<std::int64_t> batch_size() const override { return count_; }
  [[nodiscard]] std::int64_t cardinality() const override {
    const std::int64_t all = this->input().cardinality();
    return all < 0 ? all : (drop_remainder_ ? all : all + count_ - 1) / count_;
  }
  [[nodiscard]] std::int64_t batched_rows() const override {
    const std::int64_t all = this->input().cardinality();
    return all < 0 || !drop_remainder_ ? all : all / count_ * count_;
  }
  [[nodiscard]] std::optional<ElementSpec> static_spec() const override {
    const auto element = this->input().static_spec();
    if (!element || padded_) return std::nullopt;
    return batched(*element, rows());
  }
  [[nodiscard]] ElementSpec spec() const override {
    ElementSpec element = this->input().spec();
    for (TensorSpec& tensor : element) {
      if (padded_) tensor.shape.assign(tensor.shape.size(), kUnknownLength);
    }
    return batched(std::move(element), rows());
  }
  [[nodiscard]] StreamPtr<T> open(const Opening& opening) const override {
    return std::make_unique<Batches>(
        this->input().open(opening),
        std::static_pointer_cast<const BatchStage>(this->shared_from_this()));
  }

 private:
  [[nodiscard]] std::int64_t rows() const { return drop_remainder_ ? count_ : kUnknownLength; }

  class Batches final : public Stream<T> {
   public:
    Batches(StreamPtr<T> input, std::shared_ptr<const BatchStage> stage)
        : input_(std::move(input)), stage_(std::move(stage)) {}
    std::optional<T> next() override {
      const auto count = static_cast<std::size_t>(stage_->count_);
      rows_.reserve(count);
      while (rows_.size() < count) {
        // Throws for an element that could not be made; the rows so far wait for the others.
        std::optional<T> element = input_->next();
        if (!element) break;
        if (like_ && !same_keys(*like_, *element)) different_keys();
        rows_.push_back(tensors_of(*element));
        if (!like_) like_ = std::move(element);
      }
      const std::vector<Leaves> rows = std::exchange(rows_, {});
      const std::optional<T> like = std::exchange(like_, std::nullopt);
      if (rows.empty() || (rows.size() < count && stage_->drop_remainder_)) return std::nullopt;
      return with_tensors(T(*like), stage_->padded_
                                        ? stack_padded(rows, stage_->shapes_, stage_->padding_)
                                        : stack_rows(rows));
    }
    Skipped skip(std::uint64_t count, Skip how) override {
      // A row that cannot be made is a place of its own, which only shows when it is made.
      if (how == Skip::exactly || !rows_.empty()) return Stream<T>::skip(count, how);
      const auto size = static_cast<std::uint64_t>(stage_->count_);
      Skipped skipped = input_->skip(count * size, how);
      skipped.places =
          (stage_->drop_remainder_ ? skipped.places : skipped.places + size - 1) / size;
      return skipped;
    }

   private:
    StreamPtr<T> input_;
    std::shared_ptr<const BatchStage> stage_;
    std::vector<Leaves> rows_;
    std::optional<T> like_;
  };

  std::int64_t count_;
  bool drop_remainder_;
  std::string unit_;
  bool padded_ = false;
  std::vector<std::vector<std::int64_t>> shapes_;
  double padding_ = 0;
};

/// Each input gives `outputs(input)` elements, one after the other.
template <class T>
class UnbatchStage final : public Transform<UnbatchStage<T>, T, T> {
 public:
  using Transform<UnbatchStage, T, T>::Transform;
  [[nodiscard]] std::string describe() const override { return "unbatch"; }
  [[nodiscard]] std::optional<ElementSpec> static_spec() const override {
    auto batch = this->input().static_spec();
    return batch ? std::optional(row_of(std::move(*batch))) : std::nullopt;
  }
  [[nodiscard]] StreamPtr<T> open(const Opening& opening) const override {
    return std::make_unique<Rows>(this->input().open(opening));
  }

 private:
  class Rows final : public Stream<T> {
   public:
    explicit Rows(StreamPtr<T> input) : input_(std::move(input)) {}
    std::optional<T> next() override {
      while (row_ == rows_) {
        batch_ = input_->next();
        if (!batch_) return std::nullopt;
        leaves_ = tensors_of(*batch_);
        rows_ = rows_of(leaves_, "unbatch");
        row_ = 0;
      }
      return with_tensors(T(*batch_), select_row(leaves_, row_++));
    }

   private:
    StreamPtr<T> input_;
    std::optional<T> batch_;
    Leaves leaves_;
    std::int64_t row_ = 0;
    std::int64_t rows_ = 0;
  };
};

/// Every batch by itself in n slices, whose sizes differ by at most one; of these the slices first,
/// first + stride, ... An error of the input is thrown once and costs no slice.
template <class T>
class SplitStage final : public Transform<SplitStage<T>, T, T> {
 public:
  SplitStage(StageOfPtr<T> input, int parts, int first = 0, int stride = 1)
      : Transform<SplitStage, T, T>(std::move(input)),
        parts_(parts),
        first_(first),
        stride_(stride) {}
  [[nodiscard]] std::string describe() const override {
    std::string text = "split(each batch in " + std::to_string(parts_);
    if (stride_ > 1) {
      text += ", every " + std::to_string(stride_) + ". slice from number " +
              std::to_string(first_) + " on";
    }
    return text + ")";
  }
  [[nodiscard]] std::int64_t cardinality() const override {
    const std::int64_t all = this->input().cardinality();
    return all < 0 ? all : all * taken();
  }
  [[nodiscard]] std::optional<ElementSpec> static_spec() const override {
    auto batch = this->input().static_spec();
    if (!batch) return std::nullopt;
    for (TensorSpec& tensor : *batch) {
      if (tensor.shape.empty()) continue;
      std::int64_t& rows = tensor.shape.front();
      rows = rows >= 0 && rows % parts_ == 0 ? rows / parts_ : kUnknownLength;
    }
    return batch;
  }
  [[nodiscard]] ElementSpec spec() const override {
    return static_spec().value_or(with_rows(this->input().spec(), kUnknownLength));
  }
  [[nodiscard]] StreamPtr<T> open(const Opening& opening) const override {
    return std::make_unique<Slices>(
        this->input().open(opening),
        std::static_pointer_cast<const SplitStage>(this->shared_from_this()));
  }

 private:
  /// Slices of each batch that are given.
  [[nodiscard]] int taken() const noexcept { return (parts_ - first_ + stride_ - 1) / stride_; }

  class Slices final : public Stream<T> {
   public:
    Slices(StreamPtr<T> input, std::shared_ptr<const SplitStage> stage)
        : input_(std::move(input)), stage_(std::move(stage)), slice_(stage_->parts_) {}
    std::optional<T> next() override {
      if (slice_ >= stage_->parts_) {
        batch_ = input_->next();
        if (!batch_) return std::nullopt;
        leaves_ = tensors_of(*batch_);
        if (!all_have_rows(leaves_)) rows_of(leaves_, "distribute");
        slice_ = stage_->first_;
      }
      const int slice = std::exchange(slice_, slice_ + stage_->stride_);
      return with_tensors(T(*batch_), even_slice(leaves_, slice, stage_->parts_));
    }
    Skipped skip(std::uint64_t count, Skip how) override {
      if (how == Skip::exactly || slice_ < stage_->parts_) return Stream<T>::skip(count, how);
      const auto taken = static_cast<std::uint64_t>(stage_->taken());
      Skipped skipped = input_->skip(count / taken, how);
      skipped.places *= taken;
      const std::uint64_t rest = count % taken;
      if (rest > 0 && skipped.places + rest == count) skipped.add(Stream<T>::skip(rest, how));
      return skipped;
    }

   private:
    StreamPtr<T> input_;
    std::shared_ptr<const SplitStage> stage_;
    int slice_;  // the next one of the batch
    std::optional<T> batch_;
    Leaves leaves_;
  };

  int parts_;
  int first_;
  int stride_;
};

/// The rows of all batches in a row, cut anew into batches of the given sizes, over and over.
/// `together` of them are a step: if fewer rows are left than a step needs, they are cut into as
/// many batches whose sizes differ by at most one.
template <class T>
class RebatchStage final : public Transform<RebatchStage<T>, T, T> {
 public:
  RebatchStage(StageOfPtr<T> input, std::vector<std::int64_t> sizes, std::size_t together = 1,
               bool drop_remainder = false)
      : Transform<RebatchStage, T, T>(std::move(input)),
        sizes_(std::move(sizes)),
        together_(together),
        drop_remainder_(drop_remainder) {}
  [[nodiscard]] std::string describe() const override {
    std::string text = "rebatch(";
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(sizes_[i]);
    }
    if (together_ > 1) text += ", " + std::to_string(together_) + " a step";
    return text + (drop_remainder_ ? ", drop_remainder)" : ")");
  }
  [[nodiscard]] std::int64_t cardinality() const override {
    const std::int64_t rows = this->input().batched_rows();
    return rows < 0 ? rows : rebatched_count(rows, sizes_, together_, drop_remainder_);
  }
  [[nodiscard]] std::optional<ElementSpec> static_spec() const override {
    auto batch = this->input().static_spec();
    return batch ? std::optional(with_rows(std::move(*batch), rows())) : std::nullopt;
  }
  [[nodiscard]] ElementSpec spec() const override {
    return with_rows(this->input().spec(), rows());
  }
  [[nodiscard]] StreamPtr<T> open(const Opening& opening) const override {
    return std::make_unique<Rebatched>(
        this->input().open(opening),
        std::static_pointer_cast<const RebatchStage>(this->shared_from_this()));
  }

 private:
  /// The one size all have; else unknown. A last batch may be short unless the input's never are.
  [[nodiscard]] std::int64_t rows() const {
    for (const std::int64_t size : sizes_) {
      if (size != sizes_.front()) return kUnknownLength;
    }
    const auto batch = this->input().static_spec();
    std::int64_t whole = 0;
    for (const std::int64_t size : sizes_) whole += size;
    const bool even = batch && !batch->empty() && !batch->front().shape.empty() &&
                      batch->front().shape.front() == whole;
    return even || drop_remainder_ ? sizes_.front() : kUnknownLength;
  }

  class Rebatched final : public Stream<T> {
   public:
    Rebatched(StreamPtr<T> input, std::shared_ptr<const RebatchStage> stage)
        : input_(std::move(input)), stage_(std::move(stage)) {}
    std::optional<T> next() override {
      if (at_ == step_.size() && !begin_step()) return std::nullopt;
      return with_tensors(T(*like_), take(step_[at_++]));
    }

   private:
    /// Decides on the sizes of the next step, and has its rows; false at the end.
    bool begin_step() {
      if (!like_ && !read()) return false;  // nothing at all
      const auto& sizes = stage_->sizes_;
      std::vector<std::int64_t> step;
      std::int64_t wanted = 0;
      for (std::size_t i = 0; i < stage_->together_; ++i) {
        step.push_back(sizes[(turn_ + i) % sizes.size()]);
        wanted += step.back();
      }
      while (have_ < wanted && read()) {
      }
      if (have_ < wanted) {
        if (have_ == 0 || stage_->drop_remainder_) return false;
        step = even_sizes(have_, step.size());
      }
      turn_ = (turn_ + stage_->together_) % sizes.size();
      step_ = std::move(step);
      at_ = 0;
      return true;
    }
    /// One more batch of the input that has rows; false at its end.
    bool read() {
      while (input_) {
        std::optional<T> batch = input_->next();
        if (!batch) {
          input_.reset();
          return false;
        }
        Leaves leaves = tensors_of(*batch);
        const std::int64_t rows = rows_of(leaves, "distribute");
        empty_ = slice_rows(leaves, 0, 0);
        like_ = std::move(batch);
        if (rows == 0) continue;
        have_ += rows;
        parts_.push_back(std::move(leaves));
        return true;
      }
      return false;
    }
    Leaves take(std::int64_t rows) {
      if (rows == 0) return empty_;
      std::vector<Leaves> taken;
      have_ -= rows;
      while (rows > 0) {
        const std::int64_t here = parts_.front().front().size(0);
        if (here <= rows) {
          taken.push_back(std::move(parts_.front()));
          parts_.pop_front();
          rows -= here;
        } else {
          taken.push_back(slice_rows(parts_.front(), 0, rows));
          parts_.front() = slice_rows(parts_.front(), rows, here);
          rows = 0;
        }
      }
      return concatenate_rows(taken);
    }

    StreamPtr<T> input_;
    std::shared_ptr<const RebatchStage> stage_;
    std::size_t turn_ = 0;            // in the stage's sizes
    std::vector<std::int64_t> step_;  // sizes of the batches of the current step
    std::size_t at_ = 0;              // of them, the next one
    std::optional<T> like_;
    Leaves empty_;
    std::deque<Leaves> parts_;
    std::int64_t have_ = 0;  // rows in parts_
  };

  std::vector<std::int64_t> sizes_;
  std::size_t together_;
  bool drop_remainder_;
};

}  // namespace lockstep::detail
