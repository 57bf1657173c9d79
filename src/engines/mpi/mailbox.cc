#include "engines/mpi/mailbox.h"

#include <algorithm>

#include "engines/mpi/error.h"

namespace lockstep::mpi {
namespace {

constexpr int kTag = 1;

}  // namespace

Mailbox::Mailbox(MPI_Comm comm) : comm_(comm) {
  int size = 0;
  check(MPI_Comm_size(comm_, &size), "MPI_Comm_size");
  sent_.resize(static_cast<std::size_t>(size));
}

bool Mailbox::send(const Notice& notice, int to) noexcept {
  try {
    forget_sent();
    Outgoing& out = outgoing_.emplace_back();
    out.notice = std::make_unique<Notice>(notice);
    if (MPI_Isend(out.notice.get(), out.notice->bytes(), MPI_BYTE, to, kTag, comm_, &out.request) !=
        MPI_SUCCESS) {
      out.request = MPI_REQUEST_NULL;
      return false;
    }
    ++sent_[static_cast<std::size_t>(to)];
    return true;
  } catch (...) {
    return false;
  }
}

void Mailbox::forget_sent() {
  const auto over = [](Outgoing& out) {
    int done = 0;
    return MPI_Test(&out.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  };
  outgoing_.erase(std::remove_if(outgoing_.begin(), outgoing_.end(), over), outgoing_.end());
}

std::vector<Notice> Mailbox::collect() {
  std::vector<Notice> notices;
  for (;;) {
    int there = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, kTag, comm_, &there, &status), "MPI_Iprobe");
    if (there == 0) return notices;
    Notice& notice = notices.emplace_back();
    // It is there, so this does not wait.
    check(MPI_Recv(&notice, sizeof(Notice), MPI_BYTE, status.MPI_SOURCE, kTag, comm_,
                   MPI_STATUS_IGNORE),
          "MPI_Recv");
    ++received_;
  }
}

void Mailbox::close() noexcept {
  int expected = 0;
  if (MPI_Reduce_scatter_block(sent_.data(), &expected, 1, MPI_INT, MPI_SUM, comm_) !=
      MPI_SUCCESS) {
    return;
  }
  for (; received_ < expected; ++received_) {
    Notice notice;
    if (MPI_Recv(&notice, sizeof(Notice), MPI_BYTE, MPI_ANY_SOURCE, kTag, comm_,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      return;
    }
  }
  for (Outgoing& out : outgoing_) MPI_Wait(&out.request, MPI_STATUS_IGNORE);
  MPI_Comm_free(&comm_);
}

}  // namespace lockstep::mpi
