// SecretPage: a page of memory for a secret. It is left out of core files, and wiped before it goes
// back.
//
// Thread rule: a value.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep::sys {

class SecretPage {
 public:
  static constexpr std::size_t kBytes = 4096;

  /// Zeroes. SystemError if there is no memory.
  SecretPage();
  SecretPage(const SecretPage& other);
  SecretPage(SecretPage&& other) noexcept;
  SecretPage& operator=(SecretPage other) noexcept;
  ~SecretPage();

  /// Empty once it was moved from.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    return {data_, data_ != nullptr ? kBytes : 0};
  }

 private:
  std::byte* data_;
};

}  // namespace lockstep::sys
