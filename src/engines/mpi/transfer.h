// Transfer: the data of one call as MPI's own non-blocking collectives.
//
//   transfer.prepare(call, group, scratch);      // what is computed before
//   transfer.issue(requests);                     // under the runtime's lock
//   transfer.finish();                            // when all requests are complete
//
// A reduction of a 16-bit type, or of several replicas a rank, is made in memory of ours in the
// accumulator's type: the replicas of the rank are added there, MPI adds the ranks' sums, and
// finish() divides and rounds, once. Others go from the caller's memory to the caller's memory.
// Lists of buffers (a batch) are one collective for each buffer.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "coll/call.h"
#include "engines/mpi/group.h"

namespace lockstep::mpi {

class Transfer {
 public:
  /// Unsupported for parts that MPI's 32-bit counts cannot hold.
  void prepare(const coll::Call& call, Group& group);
  void issue(std::vector<MPI_Request>& requests);
  void finish();

 private:
  using Pieces = transport::Pieces;

  [[nodiscard]] bool reduces() const noexcept { return call_->reduces; }
  [[nodiscard]] bool has_output() const noexcept;
  void lay_out_parts();
  void stage_inputs();
  void divide_in_place();
  void unstage_output();

  void issue_elementwise(std::vector<MPI_Request>& requests);
  void issue_parts(std::vector<MPI_Request>& requests);
  void issue_message(std::vector<MPI_Request>& requests);
  /// Elements [first, first + count) of one buffer that every rank has.
  void issue_run(std::byte* input, std::byte* output, std::uint64_t count, MPI_Request* request);

  const coll::Call* call_ = nullptr;
  Group* group_ = nullptr;
  double divisor_ = 1;
  bool staged_ = false;
  std::uint64_t staged_count_ = 0;
  std::vector<std::byte> stage_;  // kept from call to call
  std::vector<int> counts_;       // elements of each rank's part, and where they begin
  std::vector<int> offsets_;
};

}  // namespace lockstep::mpi
