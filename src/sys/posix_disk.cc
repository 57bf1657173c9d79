#include "sys/posix_disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "sys/descriptor.h"
#include "sys/os_error.h"

namespace lockstep::sys {
namespace {

[[noreturn]] void fail(std::string_view what, const std::string& path) {
  const int error = errno;
  raise(os_error(fmt::format("cannot {} {}", what, path), error));
}

class PosixFile final : public File {
 public:
  PosixFile(Descriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  std::size_t read(std::uint64_t offset, std::span<std::byte> into) override {
    const ssize_t got = retry_on_signal(
        [&] { return ::pread(file_.get(), into.data(), into.size(), static_cast<off_t>(offset)); });
    if (got < 0) fail("read", path_);
    return static_cast<std::size_t>(got);
  }

  std::size_t write(std::uint64_t offset, std::span<const std::byte> from) override {
    if (from.empty()) return 0;
    const ssize_t written = retry_on_signal([&] {
      return ::pwrite(file_.get(), from.data(), from.size(), static_cast<off_t>(offset));
    });
    if (written < 0) fail("write", path_);
    // Not a byte and no error: some file systems say so when they are full.
    if (written == 0) raise(os_error(fmt::format("cannot write {}", path_), ENOSPC));
    return static_cast<std::size_t>(written);
  }

  void sync() override {
    if (retry_on_signal([&] { return ::fsync(file_.get()); }) != 0) fail("sync", path_);
  }

  [[nodiscard]] std::uint64_t size() const override {
    struct stat info {};
    if (::fstat(file_.get(), &info) != 0) fail("look at", path_);
    return static_cast<std::uint64_t>(info.st_size);
  }

  void close() override {
    const int fd = file_.release();
    // Interrupted or not, Linux has closed it.
    if (fd >= 0 && ::close(fd) != 0 && errno != EINTR) fail("close", path_);
  }

  [[nodiscard]] const std::string& path() const noexcept override { return path_; }

 private:
  Descriptor file_;
  std::string path_;
};

int flags_of(Disk::Open how) {
  switch (how) {
    case Disk::Open::read:
      return O_RDONLY;
    case Disk::Open::update:
      return O_RDWR;
    case Disk::Open::replace:
      return O_RDWR | O_CREAT | O_TRUNC;
    case Disk::Open::create:
      return O_RDWR | O_CREAT | O_EXCL;
  }
  return O_RDONLY;
}

}  // namespace

std::unique_ptr<File> PosixDisk::open(const std::string& path, Open how) {
  constexpr mode_t mode = 0666;  // less what the user's umask takes
  // A pipe would have us wait for its other end.
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode)) {
    raise(os_error(fmt::format("cannot open {}, which is a pipe and no file", path), ESPIPE));
  }
  Descriptor file(retry_on_signal(
      [&] { return ::open(path.c_str(), flags_of(how) | O_CLOEXEC | O_NOCTTY, mode); }));
  if (!file.valid()) fail(how == Open::create ? "create" : "open", path);
  return std::make_unique<PosixFile>(std::move(file), path);
}

void PosixDisk::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int error = errno;
    raise(os_error(fmt::format("cannot rename {} to {}", from, to), error));
  }
}

void PosixDisk::remove(const std::string& path) {
  if (::remove(path.c_str()) != 0) fail("remove", path);
}

void PosixDisk::make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return;
  const int error = errno;
  struct stat info {};
  if (error == EEXIST && ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return;
  raise(os_error(fmt::format("cannot make the directory {}", path), error));
}

std::vector<std::string> PosixDisk::list(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(directory.c_str()), ::closedir);
  if (open == nullptr) fail("list", directory);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) fail("list", directory);
  std::sort(names.begin(), names.end());
  return names;
}

void PosixDisk::sync_directory(const std::string& directory) {
  const Descriptor open(retry_on_signal(
      [&] { return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!open.valid()) fail("open the directory", directory);
  if (retry_on_signal([&] { return ::fsync(open.get()); }) != 0) {
    fail("sync the directory", directory);
  }
}

std::uint64_t PosixDisk::free_bytes(const std::string& path) {
  struct statvfs info {};
  if (retry_on_signal([&] { return ::statvfs(path.c_str(), &info); }) != 0) {
    fail("ask for free space at", path);
  }
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

}  // namespace lockstep::sys
