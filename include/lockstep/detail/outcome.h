// What became of an element of a stream.
#pragma once

#include <exception>
#include <optional>
#include <utility>

namespace lockstep::detail {

/// An element, or what was thrown instead of it: at its place in the stream.
template <class T>
struct Outcome {
  std::optional<T> element;
  std::exception_ptr error;

  template <class F>
  static Outcome of(const F& make) noexcept {
    Outcome outcome;
    try {
      outcome.element = make();
    } catch (...) {
      outcome.error = std::current_exception();
    }
    return outcome;
  }
  std::optional<T> get() && {
    if (error) std::rethrow_exception(error);
    return std::move(element);
  }
};

}  // namespace lockstep::detail
