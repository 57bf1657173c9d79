// Fabric: what connects the ranks of one generation; makes the links of its groups.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/link.h"

namespace lockstep::transport {

class Fabric {
 public:
  Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  virtual ~Fabric() = default;

  [[nodiscard]] virtual std::uint64_t generation() const noexcept = 0;
  /// This rank's end of the group `id`, whose members are ranks of the generation in the group's
  /// order. All members call it with the same arguments but their own position. Any thread; does
  /// not block.
  virtual std::unique_ptr<Link> link(std::uint64_t id, const std::vector<int>& members,
                                     int rank) = 0;
  /// What connects these members, in words: "threads", "shared memory", "tcp", "tls", "tls, data in
  /// plain text"; "shared memory and tcp" where both are used.
  [[nodiscard]] virtual std::string transport(const std::vector<int>& members) const = 0;
  /// Memory that this rank's peers can reach where that is possible at all; zeroed, aligned to a
  /// page, freed with the pointer. Any thread.
  [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes);
  [[nodiscard]] virtual bool failed() const noexcept = 0;
  [[nodiscard]] virtual Status failure() const = 0;
  virtual void fail(const Status& why) noexcept = 0;
  /// A rank of the generation takes part in none of its groups any more.
  virtual void leave(int rank) noexcept = 0;
};

}  // namespace lockstep::transport
