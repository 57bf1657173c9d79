// Generation: the ranks that have joined together, as one of them sees it: what connects them, and
// the failure that ends it. Sessions stand on one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace lockstep::transport {

class Generation {
 public:
  Generation() = default;
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;
  virtual ~Generation() = default;

  [[nodiscard]] virtual std::uint64_t generation() const noexcept = 0;
  /// What connects these members, in words: "threads", "shared memory", "tcp", "tls", "tls, data in
  /// plain text", "mpi"; "shared memory and tcp" where both are used.
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
