// Segment: memory that several processes of a host share. It has no name: whoever is given its
// descriptor maps it, and when the last process is gone, so is the memory.
//
// The size is fixed for good (sealed), so that nobody can make another's access fail, and it is
// room, not memory: a range holds memory once it was committed. Commit fails where memory is short;
// touching memory that was not committed could end the process instead.
//
//   Segment mine = Segment::create("lockstep", std::size_t{64} << 30);
//   mine.commit(0, 4096);
//   send_descriptor(connection, mine.descriptor());      // descriptor_passing.h
//   Segment theirs = Segment::map(receive_descriptor(connection));
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <string>

#include "base/function_ref.h"
#include "base/status.h"
#include "sys/descriptor.h"

namespace lockstep::sys {

class Segment {
 public:
  Segment() = default;
  /// SystemError if there is no room for so large a mapping.
  static Segment create(const std::string& label, std::size_t bytes);
  /// Maps what another process made. DataError if it is not sealed as create() does.
  static Segment map(Descriptor descriptor);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

  /// Told how many bytes this commit is still about to take, 0 in the end; returns how many others
  /// are, who look at the same free memory. Must not throw.
  using Claim = FunctionRef<std::size_t(std::size_t)>;
  /// Gives the range memory, zeroed where it had none. SystemError with what is wanted and what is
  /// free (of the machine and of this process's cgroups) if there is too little for this and for
  /// what others claim.
  Status commit(std::size_t offset, std::size_t bytes, Claim claim);
  Status commit(std::size_t offset, std::size_t bytes) {
    return commit(offset, bytes, [](std::size_t) { return std::size_t{0}; });
  }
  /// Takes whole pages of the range away again.
  void release(std::size_t offset, std::size_t bytes) noexcept;

 private:
  Segment(Descriptor descriptor, std::size_t bytes);
  /// Backs the huge pages that lie in the range with such, as far as the system has some.
  void want_huge_pages(std::size_t offset, std::size_t bytes) noexcept;

  Descriptor descriptor_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Bytes this process can still take: what the machine has available, or less if a cgroup (of
/// either version) limits it. Arguments for tests.
std::size_t free_memory(const std::string& meminfo = "/proc/meminfo",
                        const std::string& memberships = "/proc/self/cgroup",
                        const std::string& mount = "/sys/fs/cgroup");

}  // namespace lockstep::sys
