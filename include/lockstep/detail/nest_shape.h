// The shape of a nest as bytes: its containers, keys, types and lengths, without any data. A worker
// that has no element learns from another what an empty one looks like.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nest.h"

namespace lockstep::detail {

class ShapeWriter {
 public:
  void number(std::int64_t value) { words_.push_back(value); }
  void text(const std::string& value);
  void tensor(const Tensor& value);
  [[nodiscard]] const std::vector<std::int64_t>& words() const noexcept { return words_; }

 private:
  std::vector<std::int64_t> words_;
};

/// InternalError if it is asked for more than there is: the bytes are another worker's.
class ShapeReader {
 public:
  explicit ShapeReader(std::span<const std::int64_t> words) : words_(words) {}
  std::int64_t number();
  std::string text();
  /// Of that type and those lengths, on the CPU.
  Tensor tensor();
  /// Of a container, of which each item takes a word at least.
  std::size_t length();

 private:
  std::span<const std::int64_t> words_;
};

/// Whether a nest can be made from its shape: keys are numbers or strings, and its parts can be
/// made without arguments.
template <class T>
constexpr bool has_shape() {
  if constexpr (std::is_base_of_v<Tensor, T>) {
    return std::is_default_constructible_v<T>;
  } else if constexpr (is_mapping<T>) {
    using Key = typename T::key_type;
    return (std::is_same_v<Key, std::string> || std::is_integral_v<Key> ||
            std::is_enum_v<Key>)&&  //
        has_shape<typename T::mapped_type>();
  } else if constexpr (is_sequence<T> || is_optional<T>) {
    return has_shape<typename T::value_type>();
  } else if constexpr (is_tuple<T>) {
    return []<std::size_t... is>(std::index_sequence<is...>) {
      return (has_shape<std::tuple_element_t<is, T>>() && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (MemberNest<T>) {
    return std::is_default_constructible_v<T>;
  } else {
    return false;
  }
}

template <class T>
void write_shape(const T& nest, ShapeWriter& out) {
  if constexpr (std::is_base_of_v<Tensor, T>) {
    out.tensor(nest);
  } else if constexpr (is_mapping<T>) {
    out.number(static_cast<std::int64_t>(nest.size()));
    for (const auto& [key, item] : nest) {
      if constexpr (std::is_same_v<typename T::key_type, std::string>) {
        out.text(key);
      } else {
        out.number(static_cast<std::int64_t>(key));
      }
      write_shape(item, out);
    }
  } else if constexpr (is_sequence<T>) {
    out.number(static_cast<std::int64_t>(nest.size()));
    for (const auto& item : nest) write_shape(item, out);
  } else if constexpr (is_optional<T>) {
    out.number(nest.has_value() ? 1 : 0);
    if (nest) write_shape(*nest, out);
  } else if constexpr (is_tuple<T>) {
    std::apply([&](const auto&... items) { (write_shape(items, out), ...); }, nest);
  } else {
    std::apply([&](auto... members) { (write_shape(nest.*members, out), ...); },
               T::lockstep_members());
  }
}

template <class T>
T read_shape(ShapeReader& in) {
  T nest{};
  if constexpr (std::is_base_of_v<Tensor, T>) {
    static_cast<Tensor&>(nest) = in.tensor();
  } else if constexpr (is_mapping<T>) {
    using Key = typename T::key_type;
    for (std::size_t left = in.length(); left > 0; --left) {
      Key key = [&] {
        if constexpr (std::is_same_v<Key, std::string>) {
          return in.text();
        } else {
          return static_cast<Key>(in.number());
        }
      }();
      nest.emplace(std::move(key), read_shape<typename T::mapped_type>(in));
    }
  } else if constexpr (is_sequence<T>) {
    const std::size_t length = in.length();
    if constexpr (requires { nest.push_back(typename T::value_type{}); }) {
      while (nest.size() < length) nest.push_back(read_shape<typename T::value_type>(in));
    } else {
      for (auto& item : nest) item = read_shape<typename T::value_type>(in);
    }
  } else if constexpr (is_optional<T>) {
    if (in.number() != 0) nest = read_shape<typename T::value_type>(in);
  } else if constexpr (is_tuple<T>) {
    std::apply(
        [&](auto&... items) { ((items = read_shape<std::decay_t<decltype(items)>>(in)), ...); },
        nest);
  } else {
    std::apply(
        [&](auto... members) {
          ((nest.*members = read_shape<std::decay_t<decltype(nest.*members)>>(in)), ...);
        },
        T::lockstep_members());
  }
  return nest;
}

}  // namespace lockstep::detail
