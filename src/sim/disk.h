// Disk: simulated files that tell safe bytes from unsafe ones.
//
// Content written and not synced, and names changed in a directory not synced, are kept apart.
// crash() is a power failure: by seed, each unsafe write is kept, lost or torn at a sector, and the
// changes of names are kept up to some point in their order. So a file may be renamed into place
// and be empty, as on real disks.
//
//   Disk disk(world, {.capacity = 1 << 20, .short_transfers = true});
//   disk.make_directory("/data");
//   save(disk, "/data/model");
//   disk.fail_next({.operation = Disk::Operation::sync, .error = EIO, .after = 2});
//   disk.crash();                                  // open files are gone; disk goes on
//
// Paths are absolute, without "." and ".."; "/" exists. Ownership: outlives its files; the World
// outlives it. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/world.h"
#include "sys/disk.h"

namespace lockstep::sim {

namespace detail {

/// The content of a file: as programs see it, and as it would be found after a crash.
class Content {
 public:
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  void truncate();
  void sync();
  /// What a failed sync does: programs see the writes, the device never will.
  void forget_unsafe() { unsafe_.clear(); }
  void crash(Random& random);
  [[nodiscard]] const std::vector<std::byte>& bytes() const noexcept { return now_; }

 private:
  struct Write {
    std::uint64_t offset = 0;
    std::vector<std::byte> bytes;  // none: the file was emptied
  };
  static void apply(std::vector<std::byte>& to, const Write& write);

  std::vector<std::byte> now_;
  std::vector<std::byte> safe_;
  std::vector<Write> unsafe_;
};

}  // namespace detail

struct DiskOptions {
  std::uint64_t capacity = std::uint64_t{1} << 30;
  bool short_transfers = false;  // reads and writes move 1 byte to all, by seed
};

class Disk final : public sys::Disk {
 public:
  enum class Operation : unsigned char {
    open,
    read,
    write,
    sync,
    close,
    rename,
    remove,
    make_directory,
    list,
    sync_directory,
  };
  struct Fault {
    Operation operation;
    int error;      // an errno: EIO, ENOSPC ...
    int after = 0;  // calls that still succeed
  };

  explicit Disk(World& world, DiskOptions options = {}) : world_(world), options_(options) {}
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  std::unique_ptr<sys::File> open(const std::string& path, Open how) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  void make_directory(const std::string& path) override;
  std::vector<std::string> list(const std::string& directory) override;
  void sync_directory(const std::string& directory) override;
  std::uint64_t free_bytes(const std::string& path) override;

  /// One call of that operation fails, once.
  void fail_next(const Fault& fault) { faults_.push_back(fault); }
  void set_capacity(std::uint64_t bytes) { options_.capacity = bytes; }
  void crash();

 private:
  friend class SimFile;
  using Names = std::map<std::string, std::shared_ptr<detail::Content>>;  // null: a directory
  struct Change {
    enum class Kind : unsigned char { add, remove, rename };
    Kind kind;
    std::string path;
    std::string to;
    std::shared_ptr<detail::Content> content;
  };

  static void apply(Names& names, const Change& change);
  void change(Change change);
  void fault_or_go_on(Operation operation, const std::string& what);
  void require_directory(const std::string& path, const std::string& what) const;
  [[nodiscard]] bool is_directory(const std::string& path) const;
  [[nodiscard]] bool has_children(const std::string& directory) const;
  [[nodiscard]] std::uint64_t room() const;

  World& world_;
  DiskOptions options_;
  Names now_;
  Names safe_;
  std::vector<Change> unsafe_;
  std::vector<Fault> faults_;
  std::uint64_t crashes_ = 0;
};

}  // namespace lockstep::sim
