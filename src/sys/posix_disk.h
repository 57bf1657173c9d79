// PosixDisk: the real file system.
#pragma once

#include "sys/disk.h"

namespace lockstep::sys {

class PosixDisk final : public Disk {
 public:
  std::unique_ptr<File> open(const std::string& path, Open how) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  void make_directory(const std::string& path) override;
  std::vector<std::string> list(const std::string& directory) override;
  void sync_directory(const std::string& directory) override;
  std::uint64_t free_bytes(const std::string& path) override;
};

}  // namespace lockstep::sys
