// MpiCarrier: carries out the operations of one group by MPI. An operation has two or three parts,
// each a few MPI requests:
//   1. agree: every rank's fingerprint of what it asks for is reduced to the least and the
//   greatest;
//      between two ranks of a message the descriptors themselves are exchanged.
//   2. table: only if they differ, all descriptors are gathered: Mismatch on every rank.
//   3. data (transfer.h).
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "coll/carrier.h"
#include "engines/mpi/group.h"
#include "engines/mpi/transfer.h"

namespace lockstep::mpi {

class MpiCarrier final : public coll::Carrier {
 public:
  MpiCarrier(std::shared_ptr<Job> job, const coll::GroupSpec& spec, int rank,
             const coll::SessionOptions& options);
  ~MpiCarrier() override;

  transport::GroupEnd& end() noexcept override { return group_; }
  const char* start(const coll::Call& call, wire::Descriptor& descriptor) override;
  coll::State poll() override;
  [[nodiscard]] std::uint64_t progress() const noexcept override { return progress_; }

 private:
  enum class Part : std::uint8_t { begin, agree, table, data };
  /// Memory that MPI may use after this object is gone, when an operation was left unfinished.
  struct Work {
    std::vector<MPI_Request> requests;
    std::array<std::uint64_t, 2> least{};
    std::vector<wire::Descriptor> table;
    Transfer transfer;
  };

  [[nodiscard]] bool is_message() const noexcept {
    return group_.spec().purpose == coll::Purpose::messages;
  }
  /// Whether all requests of the current part are complete.
  bool complete();
  /// What the complete part was about; issues the next. done: there is none.
  coll::State advance();
  void agree();
  [[nodiscard]] bool agreed() const;
  void gather_table();
  void disagree();

  Group group_;
  std::unique_ptr<Work> work_;
  std::vector<int> indices_;
  const coll::Call* call_ = nullptr;
  const wire::Descriptor* descriptor_ = nullptr;
  Part part_ = Part::begin;
  std::uint64_t progress_ = 0;
};

}  // namespace lockstep::mpi
