// Job: one task on one rank, with its memory, ready to be executed by a coll::Operation; and what
// its output must be.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "coll/operation.h"
#include "tests/sim_cluster/schedule.h"

namespace lockstep::simulated {

using Bytes = std::vector<std::byte>;

class Job {
 public:
  Job(const Task& task, const plan::Layout& layout, int rank, std::uint64_t sequence);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Peers compare this; by default what the task says.
  void set_descriptor(const wire::Descriptor& descriptor) { descriptor_ = descriptor; }
  [[nodiscard]] const wire::Descriptor& descriptor() const noexcept { return descriptor_; }
  void start(coll::Operation& operation);
  [[nodiscard]] std::span<const std::byte> output() const noexcept;
  /// Nothing was written behind the output.
  [[nodiscard]] bool fence_intact() const noexcept;

 private:
  plan::Plan plan_;
  wire::Descriptor descriptor_;
  std::vector<Bytes> inputs_;
  Bytes output_;
  bool in_place_ = false;
  std::size_t output_bytes_ = 0;
  Bytes scratch_;
  Bytes partial_;
  std::vector<transport::Pieces::Piece> pieces_;  // inputs, then output
  std::vector<transport::Pieces> views_;
  coll::Bindings bindings_;
  transport::Exposure exposure_;
};

/// What each rank's output must be. Computed without plans and links: all inputs in one place,
/// added as the fixed tree. Algorithms with an order of their own are run alone, undisturbed.
std::vector<Bytes> expected_outputs(const Task& task, const plan::Layout& layout);

}  // namespace lockstep::simulated
