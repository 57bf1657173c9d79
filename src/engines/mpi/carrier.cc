#include "engines/mpi/carrier.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <optional>

#include "engines/mpi/error.h"
#include "transport/mismatch.h"

namespace lockstep::mpi {
namespace {

using coll::State;

constexpr int kAgreeTag = 0;  // and 1, for the other direction

}  // namespace

MpiCarrier::MpiCarrier(std::shared_ptr<Job> job, const coll::GroupSpec& spec, int rank,
                       const coll::SessionOptions& options)
    : group_(std::move(job), spec, rank, options.progress_timeout),
      work_(std::make_unique<Work>()) {}

MpiCarrier::~MpiCarrier() {
  if (work_->requests.empty()) return;
  group_.job().runtime().mark_broken();
  // MPI may still write there.
  static_cast<void>(work_.release());  // NOLINT(bugprone-unused-return-value)
}

const char* MpiCarrier::start(const coll::Call& call, wire::Descriptor& descriptor) {
  const auto& counts = call.counts;
  descriptor.plan_hash =
      counts.empty() ? 0 : XXH3_64bits(counts.data(), counts.size() * sizeof(counts.front()));
  call_ = &call;
  descriptor_ = &descriptor;
  part_ = Part::begin;
  work_->transfer.prepare(call, group_);
  return "mpi";
}

State MpiCarrier::poll() {
  if (group_.failed()) return State::failed;
  for (;;) {
    if (!complete()) return State::pending;
    const State state = advance();
    if (state != State::pending) return state;
  }
}

bool MpiCarrier::complete() {
  auto& requests = work_->requests;
  if (requests.empty()) return true;
  indices_.resize(requests.size());
  int finished = 0;
  {
    const MutexLock lock(group_.job().runtime().mutex());
    check(MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &finished,
                       indices_.data(), MPI_STATUSES_IGNORE),
          "MPI_Testsome");
  }
  if (finished == MPI_UNDEFINED) {  // none is left
    requests.clear();
    return true;
  }
  progress_ += static_cast<std::uint64_t>(finished);
  return false;
}

State MpiCarrier::advance() {
  ++progress_;
  const auto issue = [this](Part part, auto function) {
    const MutexLock lock(group_.job().runtime().mutex());
    part_ = part;
    function();
  };
  switch (part_) {
    case Part::begin:
      // Also ranks that never wait learn that the generation has failed.
      group_.job().runtime().deliver_notices();
      if (group_.failed()) return State::failed;
      group_.begin(*descriptor_);
      issue(Part::agree, [this] { agree(); });
      return State::pending;
    case Part::agree:
      if (agreed()) {
        issue(Part::data, [this] { work_->transfer.issue(work_->requests); });
        return State::pending;
      }
      if (!is_message()) {
        issue(Part::table, [this] { gather_table(); });
        return State::pending;
      }
      [[fallthrough]];
    case Part::table:
      disagree();
      return State::failed;
    case Part::data:
      break;
  }
  work_->transfer.finish();
  group_.completed();
  return State::done;
}

void MpiCarrier::agree() {
  auto& requests = work_->requests;
  auto& table = work_->table;
  table.assign(static_cast<std::size_t>(group_.size()), wire::Descriptor{});
  if (is_message()) {
    const auto mine = static_cast<std::size_t>(group_.rank());
    table[mine] = *descriptor_;
    const int tag = kAgreeTag + group_.tag();
    check(MPI_Isend(&table[mine], sizeof(wire::Descriptor), MPI_BYTE, group_.peer(), tag,
                    group_.comm(), &requests.emplace_back(MPI_REQUEST_NULL)),
          "MPI_Isend");
    check(MPI_Irecv(&table[1 - mine], sizeof(wire::Descriptor), MPI_BYTE, group_.peer(), tag,
                    group_.comm(), &requests.emplace_back(MPI_REQUEST_NULL)),
          "MPI_Irecv");
    return;
  }
  // The greatest is the complement of the least complement.
  const std::uint64_t fingerprint = wire::fingerprint(*descriptor_);
  work_->least = {fingerprint, ~fingerprint};
  check(MPI_Iallreduce(MPI_IN_PLACE, work_->least.data(), 2, MPI_UINT64_T, MPI_MIN, group_.comm(),
                       &requests.emplace_back(MPI_REQUEST_NULL)),
        "MPI_Iallreduce");
}

bool MpiCarrier::agreed() const {
  if (!is_message()) return work_->least[0] == ~work_->least[1];
  return wire::fingerprint(work_->table[0]) == wire::fingerprint(work_->table[1]);
}

void MpiCarrier::gather_table() {
  work_->table[static_cast<std::size_t>(group_.rank())] = *descriptor_;
  check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, work_->table.data(),
                       sizeof(wire::Descriptor), MPI_BYTE, group_.comm(),
                       &work_->requests.emplace_back(MPI_REQUEST_NULL)),
        "MPI_Iallgather");
}

void MpiCarrier::disagree() {
  std::vector<std::optional<wire::Descriptor>> rows(work_->table.begin(), work_->table.end());
  group_.completed();
  group_.fail_together(transport::mismatch(descriptor_->sequence, rows, group_.spec().members));
}

}  // namespace lockstep::mpi
