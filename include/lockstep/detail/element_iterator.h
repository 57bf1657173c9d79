// What a range-based for loop needs of something that gives one element after the other.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

namespace lockstep::detail {

/// Goes through source->next() until it gives none. Equal at the end only.
template <class Source>
class ElementIterator {
 public:
  using Element = decltype(std::declval<Source&>().next());  // an optional
  using iterator_category = std::input_iterator_tag;
  using value_type = typename Element::value_type;
  using difference_type = std::ptrdiff_t;
  using pointer = const value_type*;
  using reference = const value_type&;

  ElementIterator() = default;
  explicit ElementIterator(std::shared_ptr<Source> source) : source_(std::move(source)) { ++*this; }
  reference operator*() const { return *element_; }
  pointer operator->() const { return &*element_; }
  ElementIterator& operator++() {
    element_.reset();  // its memory serves the next one
    element_ = source_->next();
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const ElementIterator& a, const ElementIterator& b) {
    return !a.element_ && !b.element_;
  }

 private:
  std::shared_ptr<Source> source_;
  Element element_;
};

}  // namespace lockstep::detail
