#include "launch/key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/status.h"
#include "sys/descriptor.h"
#include "sys/os_error.h"
#include "transport/keys.h"
#include "usage_error.h"

namespace lockstep::tool {

void write_new_key(const std::string& path) {
  const std::string text = transport::JobKey::random().to_text() + '\n';
  const sys::Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid() ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    raise(sys::os_error(fmt::format("cannot write the key {}", path), errno));
  }
}

void check_key_file(const std::string& path) {
  try {
    (void)transport::JobKey::from_file(path);
  } catch (const Error& error) {
    const bool missing = error.code() == Code::not_found;
    throw UsageError(fmt::format("{}{}", error.what(),
                                 missing ? fmt::format("; this makes a key: {}", kMakeKey) : ""));
  }
}

}  // namespace lockstep::tool
