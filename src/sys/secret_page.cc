#include "sys/secret_page.h"

#include <string.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "sys/os_error.h"

namespace lockstep::sys {

SecretPage::SecretPage() : data_(nullptr) {
  void* page = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) raise(os_error("cannot have memory for a key", errno));
  ::madvise(page, kBytes, MADV_DONTDUMP);
  data_ = static_cast<std::byte*>(page);
}

SecretPage::SecretPage(const SecretPage& other) : SecretPage() {
  if (other.data_ != nullptr) std::memcpy(data_, other.data_, kBytes);
}

SecretPage::SecretPage(SecretPage&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}

SecretPage& SecretPage::operator=(SecretPage other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

SecretPage::~SecretPage() {
  if (data_ == nullptr) return;
  ::explicit_bzero(data_, kBytes);
  ::munmap(data_, kBytes);
}

}  // namespace lockstep::sys
