// Mailbox: notices between the ranks of MPI_COMM_WORLD, over a communicator of their own. Nothing
// blocks but close(). Every call holds the runtime's lock.
#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

#include "engines/mpi/notice.h"

namespace lockstep::mpi {

class Mailbox {
 public:
  /// Takes a communicator of all ranks that nobody else uses.
  explicit Mailbox(MPI_Comm comm);

  /// False if MPI refused.
  bool send(const Notice& notice, int to) noexcept;
  /// What has arrived, in order per sender.
  std::vector<Notice> collect();
  /// Takes in what is under way, so that nothing is left when MPI is finalised. Every rank calls
  /// it.
  void close() noexcept;

 private:
  struct Outgoing {
    std::unique_ptr<Notice> notice;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  void forget_sent();

  MPI_Comm comm_;
  std::vector<Outgoing> outgoing_;
  std::vector<int> sent_;  // notices to each rank
  int received_ = 0;
};

}  // namespace lockstep::mpi
