// AtomicBox: a value one thread writes while others may read, without a lock. The words are atomic,
// the value as a whole is not: readers must know from elsewhere that it was not being rewritten (an
// ordering through another atomic, or a stamp compared before and after).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace lockstep {

template <class T>
class AtomicBox {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0);

 public:
  void write(const T& value) noexcept { write(value, sizeof(T)); }
  /// Only the first bytes, up to the end of the word they end in; the others stay as they are.
  void write(const T& value, std::size_t used) noexcept {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    const std::size_t words = (used + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
    for (std::size_t i = 0; i < words; ++i) {
      std::uint64_t word;
      std::memcpy(&word, bytes + i * sizeof(word), sizeof(word));
      words_[i].store(word, std::memory_order_release);
    }
  }
  [[nodiscard]] T read() const noexcept {
    std::array<std::uint64_t, kWords> words;
    for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
    T value;
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof(T));
    return value;
  }

 private:
  static constexpr std::size_t kWords = sizeof(T) / sizeof(std::uint64_t);
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

}  // namespace lockstep
