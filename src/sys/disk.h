// Disk: files, with what it takes to make them survive a crash.
//
// Written bytes survive after File::sync(); a new, renamed or removed name survives after
// sync_directory() of its directory. The order that makes a file appear whole or not at all:
//
//   auto file = disk.open("/data/model.tmp", Disk::Open::replace);   // 1. write aside
//   write_all(*file, 0, bytes);
//   file->sync();                                                    // 2. content first
//   file->close();
//   disk.rename("/data/model.tmp", "/data/model");                   // 3. then the name
//   disk.sync_directory("/data");                                    // 4. then the directory
//
// Every failure is a SystemError that names path, cause and advice. The simulated disk in sim/
// implements the same interface. Thread rule: one thread at a time uses a File; any a Disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::sys {

class File {
 public:
  /// Closes; nothing is reported and nothing made safe.
  virtual ~File() = default;
  /// Bytes read, maybe fewer than asked; 0 at the end of the file.
  virtual std::size_t read(std::uint64_t offset, std::span<std::byte> into) = 0;
  /// Bytes written, at least one, maybe fewer than given; 0 for none given.
  virtual std::size_t write(std::uint64_t offset, std::span<const std::byte> from) = 0;
  /// Returns when the content would survive a crash. After a failure it is unknown what did: write
  /// the file anew.
  virtual void sync() = 0;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  /// Reports what some file systems tell only now. Nothing may follow.
  virtual void close() = 0;
  [[nodiscard]] virtual const std::string& path() const noexcept = 0;
};

class Disk {
 public:
  enum class Open : unsigned char {
    read,     // must exist
    update,   // must exist; read and write
    replace,  // made, or emptied
    create,   // must not exist
  };

  virtual ~Disk() = default;
  virtual std::unique_ptr<File> open(const std::string& path, Open how) = 0;
  /// Atomic; replaces a file of that name.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// A file or an empty directory.
  virtual void remove(const std::string& path) = 0;
  /// Does nothing if it exists; its parent must.
  virtual void make_directory(const std::string& path) = 0;
  /// Names in the directory, sorted, without "." and "..".
  virtual std::vector<std::string> list(const std::string& directory) = 0;
  virtual void sync_directory(const std::string& directory) = 0;
  /// Bytes this process can still write on the file system of that path.
  virtual std::uint64_t free_bytes(const std::string& path) = 0;
};

/// Writes until everything is.
void write_all(File& file, std::uint64_t offset, std::span<const std::byte> from);
/// Reads until the span is full; DataError naming the file and the sizes if it ends before.
void read_all(File& file, std::uint64_t offset, std::span<std::byte> into);

}  // namespace lockstep::sys
