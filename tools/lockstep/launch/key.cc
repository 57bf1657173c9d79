#include "launch/key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "sys/descriptor.h"
#include "sys/os_error.h"
#include "usage_error.h"

namespace lockstep::tool {
namespace {

constexpr std::size_t kBytes = 32;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw UsageError(fmt::format("the key file {} {}", path, why));
}

}  // namespace

void write_new_key(const std::string& path) {
  std::array<unsigned char, kBytes> key{};
  if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    raise(sys::os_error("cannot draw a key", errno));
  }
  std::string text;
  for (const unsigned char byte : key) text += fmt::format("{:02x}", byte);
  text += '\n';
  const sys::Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid() ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    raise(sys::os_error(fmt::format("cannot write the key {}", path), errno));
  }
}

void check_key_file(const std::string& path) {
  const sys::Descriptor file(
      ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid()) {
    refuse(path, errno == ELOOP ? "is a symbolic link; name the file itself"
                                : fmt::format("cannot be opened: {}; make one: {}",
                                              ::strerror(errno), kMakeKey));
  }
  struct stat about {};
  if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) refuse(path, "is no file");
  if (about.st_uid != ::geteuid()) refuse(path, "belongs to another user");
  if ((about.st_mode & 077) != 0) {
    refuse(path, fmt::format("can be read by others; chmod 600 {}", path));
  }
  std::array<char, 4 * kBytes> text{};
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  std::size_t digits = 0;
  bool strange = size < 0;
  for (ssize_t i = 0; i < size; ++i) {
    const auto c = static_cast<unsigned char>(text[static_cast<std::size_t>(i)]);
    if (std::isxdigit(c) != 0) {
      ++digits;
    } else if (std::isspace(c) == 0) {
      strange = true;
    }
  }
  if (strange || digits != 2 * kBytes) {
    refuse(path,
           fmt::format("does not hold {} hexadecimal digits; make one: {}", 2 * kBytes, kMakeKey));
  }
}

}  // namespace lockstep::tool
