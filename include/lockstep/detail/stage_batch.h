// Stages that put rows together and cut them apart.
#pragma once

#include <algorithm>
#include <deque>

#include "lockstep/detail/outcome.h"
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
    std::uint64_t skip(std::uint64_t count) override {
      const auto size = static_cast<std::uint64_t>(stage_->count_);
      const std::uint64_t rows = input_->skip(count * size);
      return stage_->drop_remainder_ ? rows / size : (rows + size - 1) / size;
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

/// Every batch in n slices of ceil(rows / n): what sharding by data deals out.
template <class T>
class SplitStage final : public Transform<SplitStage<T>, T, T> {
 public:
  SplitStage(StageOfPtr<T> input, int parts)
      : Transform<SplitStage, T, T>(std::move(input)), parts_(parts) {}
  [[nodiscard]] std::string describe() const override {
    return "split(each batch in " + std::to_string(parts_) + ")";
  }
  [[nodiscard]] std::int64_t cardinality() const override {
    const std::int64_t all = this->input().cardinality();
    return all < 0 ? all : all * parts_;
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
    return std::make_unique<Parts>(this->input().open(opening), parts_);
  }

 private:
  class Parts final : public Stream<T> {
   public:
    Parts(StreamPtr<T> input, int parts) : input_(std::move(input)), parts_(parts), part_(parts) {}
    std::optional<T> next() override {
      if (part_ == parts_) {
        // A batch that cannot be made is an error in the place of each of its slices: whoever takes
        // only some of them must not miss it.
        auto outcome = Outcome<T>::of([&] { return input_->next(); });
        error_ = outcome.error;
        batch_ = std::move(outcome.element);
        if (!batch_ && !error_) return std::nullopt;
        if (batch_) leaves_ = tensors_of(*batch_);
        part_ = 0;
      }
      if (error_) {
        ++part_;
        std::rethrow_exception(error_);
      }
      return with_tensors(T(*batch_), even_slice(leaves_, part_++, parts_));
    }
    std::uint64_t skip(std::uint64_t count) override {
      std::uint64_t skipped = 0;
      for (; part_ != parts_ && skipped < count; ++part_) ++skipped;
      const auto parts = static_cast<std::uint64_t>(parts_);
      skipped += input_->skip((count - skipped) / parts) * parts;
      return skipped + (skipped < count ? Stream<T>::skip(count - skipped) : 0);
    }

   private:
    StreamPtr<T> input_;
    int parts_;
    int part_;
    std::optional<T> batch_;
    std::exception_ptr error_;
    Leaves leaves_;
  };

  int parts_;
};

/// The rows of all batches in a row, cut anew into batches of the given sizes, over and over.
template <class T>
class RebatchStage final : public Transform<RebatchStage<T>, T, T> {
 public:
  RebatchStage(StageOfPtr<T> input, std::vector<std::int64_t> sizes, bool drop_remainder = false)
      : Transform<RebatchStage, T, T>(std::move(input)),
        sizes_(std::move(sizes)),
        drop_remainder_(drop_remainder) {}
  [[nodiscard]] std::string describe() const override {
    std::string text = "rebatch(";
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(sizes_[i]);
    }
    return text + (drop_remainder_ ? ", drop_remainder)" : ")");
  }
  [[nodiscard]] const std::vector<std::int64_t>& sizes() const noexcept { return sizes_; }
  [[nodiscard]] std::optional<ElementSpec> static_spec() const override {
    auto batch = this->input().static_spec();
    return batch ? std::optional(with_rows(std::move(*batch), rows())) : std::nullopt;
  }
  [[nodiscard]] ElementSpec spec() const override {
    return with_rows(this->input().spec(), rows());
  }
  [[nodiscard]] StreamPtr<T> open(const Opening& opening) const override {
    return std::make_unique<Rebatched>(this->input().open(opening), sizes_, drop_remainder_);
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
    Rebatched(StreamPtr<T> input, std::vector<std::int64_t> sizes, bool drop_remainder)
        : input_(std::move(input)), sizes_(std::move(sizes)), drop_remainder_(drop_remainder) {}
    std::optional<T> next() override {
      const std::int64_t size = sizes_[turn_];
      if (!like_ && !read()) return std::nullopt;  // nothing at all
      while (have_ < size && read()) {
      }
      const std::int64_t rows = std::min(size, have_);
      if (size > 0 && (rows == 0 || (rows < size && drop_remainder_))) return std::nullopt;
      turn_ = (turn_ + 1) % sizes_.size();
      return with_tensors(T(*like_), take(rows));
    }

   private:
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
    std::vector<std::int64_t> sizes_;
    bool drop_remainder_;
    std::size_t turn_ = 0;
    std::optional<T> like_;
    Leaves empty_;
    std::deque<Leaves> parts_;
    std::int64_t have_ = 0;  // rows in parts_
  };

  std::vector<std::int64_t> sizes_;
  bool drop_remainder_;
};

}  // namespace lockstep::detail
