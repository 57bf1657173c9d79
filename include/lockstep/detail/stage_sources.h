// Where elements come from: tensors, numbers, lists and functions.
#pragma once

#include <functional>
#include <memory>

#include "lockstep/detail/stage.h"

namespace lockstep::detail {

/// InvalidUsage unless there are tensors and all have as many rows; their number.
std::int64_t rows_to_slice(const Leaves& leaves);
Tensor range_element(std::int64_t value);

/// A list of elements as they are.
template <class T>
class ListStage final : public Source<T> {
 public:
  ListStage(std::vector<T> elements, std::string text)
      : elements_(std::make_shared<const std::vector<T>>(std::move(elements))),
        text_(std::move(text)) {}

  [[nodiscard]] std::string describe() const override { return text_; }
  [[nodiscard]] std::int64_t cardinality() const override {
    return static_cast<std::int64_t>(elements_->size());
  }
  [[nodiscard]] std::optional<ElementSpec> static_spec() const override {
    if constexpr (IsTensorNest<T>::value) {
      if (!elements_->empty()) {
        ElementSpec spec = spec_of(tensors_of(elements_->front()));
        for (const T& element : *elements_) spec = merged(spec, spec_of(tensors_of(element)));
        return spec;
      }
    }
    return std::nullopt;
  }
  [[nodiscard]] StreamPtr<T> open(const Opening&) const override {
    return std::make_unique<Elements>(elements_);
  }

 private:
  class Elements final : public Stream<T> {
   public:
    explicit Elements(std::shared_ptr<const std::vector<T>> all) : all_(std::move(all)) {}
    std::optional<T> next() override {
      stop_if_asked();
      if (at_ == all_->size()) return std::nullopt;
      return (*all_)[at_++];
    }
    Skipped skip(std::uint64_t count, Skip) override {
      count = std::min<std::uint64_t>(count, all_->size() - at_);
      at_ += count;
      return {count};
    }

   private:
    std::shared_ptr<const std::vector<T>> all_;
    std::size_t at_ = 0;
  };

  std::shared_ptr<const std::vector<T>> elements_;
  std::string text_;
};

/// The n-th element is fn(n).
template <class T>
class IndexedStage final : public Source<T> {
 public:
  IndexedStage(std::int64_t count, std::function<T(std::int64_t)> element,
               std::optional<ElementSpec> spec, std::string text)
      : count_(count),
        element_(std::move(element)),
        spec_(std::move(spec)),
        text_(std::move(text)) {}

  [[nodiscard]] std::string describe() const override { return text_; }
  [[nodiscard]] std::int64_t cardinality() const override { return count_; }
  [[nodiscard]] std::optional<ElementSpec> static_spec() const override { return spec_; }
  [[nodiscard]] StreamPtr<T> open(const Opening&) const override {
    return std::make_unique<Elements>(count_, element_);
  }

 private:
  class Elements final : public Stream<T> {
   public:
    Elements(std::int64_t count, std::function<T(std::int64_t)> element)
        : count_(count), element_(std::move(element)) {}
    std::optional<T> next() override {
      stop_if_asked();
      if (at_ == count_) return std::nullopt;
      return element_(at_++);
    }
    Skipped skip(std::uint64_t count, Skip) override {
      count = std::min(count, static_cast<std::uint64_t>(count_ - at_));
      at_ += static_cast<std::int64_t>(count);
      return {count};
    }

   private:
    std::int64_t count_;
    std::function<T(std::int64_t)> element_;
    std::int64_t at_ = 0;
  };

  std::int64_t count_;
  std::function<T(std::int64_t)> element_;
  std::optional<ElementSpec> spec_;
  std::string text_;
};

/// make() gives a function that is called for one element after the other; none ends the stream.
template <class T>
class GeneratorStage final : public Source<T> {
 public:
  using Next = std::function<std::optional<T>()>;
  explicit GeneratorStage(std::function<Next()> make) : make_(std::move(make)) {}

  [[nodiscard]] std::string describe() const override { return "generator"; }
  [[nodiscard]] StreamPtr<T> open(const Opening&) const override {
    return std::make_unique<Elements>(make_());
  }

 private:
  class Elements final : public Stream<T> {
   public:
    explicit Elements(Next next) : next_(std::move(next)) {}
    std::optional<T> next() override {
      stop_if_asked();
      if (!next_) return std::nullopt;
      std::optional<T> element = next_();
      if (!element) next_ = nullptr;  // what it holds is let go at once
      return element;
    }

   private:
    Next next_;
  };

  std::function<Next()> make_;
};

}  // namespace lockstep::detail
