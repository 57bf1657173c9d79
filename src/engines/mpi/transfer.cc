#include "engines/mpi/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "engines/mpi/error.h"
#include "kernel/reduce.h"

namespace lockstep::mpi {
namespace {

using plan::Kind;

/// Longer buffers are several collectives: counts of MPI 3 have 31 bits.
constexpr std::uint64_t kMaxRun = std::uint64_t{1} << 30;
constexpr int kDataTag = 2;  // and 3, for the other direction

std::byte* data_of(const transport::Pieces& buffer) {
  return buffer.pieces.empty() ? nullptr : buffer.pieces[0].data;
}

}  // namespace

bool Transfer::has_output() const noexcept { return !call_->exposure().output.pieces.empty(); }

void Transfer::prepare(const coll::Call& call, Group& group) {
  call_ = &call;
  group_ = &group;
  const auto& replicas = group.spec().replicas;
  divisor_ =
      reduces() && call.op == Op::mean ? std::accumulate(replicas.begin(), replicas.end(), 0) : 1;
  staged_ =
      reduces() && (call.exposure().inputs.size() > 1 || accumulator_of(call.dtype) != call.dtype);
  lay_out_parts();
  if (staged_) stage_inputs();
}

void Transfer::lay_out_parts() {
  const auto size = static_cast<std::size_t>(group_->size());
  counts_.assign(size, 0);
  offsets_.assign(size, 0);
  std::uint64_t total = 0;
  const bool in_parts = call_->kind == Kind::all_gather || call_->kind == Kind::reduce_scatter ||
                        call_->kind == Kind::gather || call_->kind == Kind::scatter ||
                        call_->kind == Kind::all_to_all;
  if (!in_parts) return;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const std::uint64_t count = call_->counts.empty() ? call_->count : call_->counts[rank];
    if (total + count > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) {
      throw Unsupported(
          fmt::format("the parts of all ranks together have more than {} elements, which MPI's "
                      "counts cannot hold: use several calls",
                      std::numeric_limits<int>::max()));
    }
    counts_[rank] = static_cast<int>(count);
    offsets_[rank] = static_cast<int>(total);
    total += count;
  }
}

void Transfer::stage_inputs() {
  const auto inputs = call_->exposure().inputs;
  const std::size_t width = size_of(accumulator_of(call_->dtype));
  const auto& pieces = inputs[0].pieces;
  staged_count_ = pieces.empty() ? 0 : pieces.back().end;
  stage_.resize(staged_count_ * width);
  const auto merges = kernel::tree_merges(static_cast<int>(inputs.size()));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::vector<kernel::Input> sources;
    for (const Pieces& input : inputs) sources.push_back({input.pieces[i].data});
    const kernel::Target target{stage_.data() + pieces[i].begin * width, kernel::Form::partial};
    kernel::reduce({.op = call_->op,
                    .dtype = call_->dtype,
                    .inputs = sources,
                    .merges = merges,
                    .targets = {&target, 1},
                    .count = pieces[i].end - pieces[i].begin});
  }
}

void Transfer::issue(std::vector<MPI_Request>& requests) {
  switch (call_->kind) {
    case Kind::all_reduce:
    case Kind::reduce:
    case Kind::broadcast:
      return issue_elementwise(requests);
    case Kind::barrier:
      return check(MPI_Ibarrier(group_->comm(), &requests.emplace_back(MPI_REQUEST_NULL)),
                   "MPI_Ibarrier");
    case Kind::send_receive:
      return issue_message(requests);
    default:
      return issue_parts(requests);
  }
}

void Transfer::issue_elementwise(std::vector<MPI_Request>& requests) {
  const auto issue_all = [&](std::byte* input, std::byte* output, std::uint64_t count) {
    const std::size_t width = size_of(staged_ ? accumulator_of(call_->dtype) : call_->dtype);
    for (std::uint64_t first = 0; first < count; first += kMaxRun) {
      issue_run(input + first * width, output == nullptr ? nullptr : output + first * width,
                std::min(kMaxRun, count - first), &requests.emplace_back(MPI_REQUEST_NULL));
    }
  };
  if (staged_) return issue_all(stage_.data(), stage_.data(), staged_count_);
  const auto inputs = call_->exposure().inputs[0].pieces;
  const auto outputs = call_->exposure().output.pieces;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    issue_all(inputs[i].data, has_output() ? outputs[i].data : nullptr,
              inputs[i].end - inputs[i].begin);
  }
}

void Transfer::issue_run(std::byte* input, std::byte* output, std::uint64_t elements,
                         MPI_Request* request) {
  const int count = static_cast<int>(elements);
  const MPI_Comm comm = group_->comm();
  const DType dtype = staged_ ? accumulator_of(call_->dtype) : call_->dtype;
  const MPI_Datatype type = datatype_of(dtype);
  if (call_->kind == Kind::broadcast) {
    return check(MPI_Ibcast(output, count, type, call_->root, comm, request), "MPI_Ibcast");
  }
  const MPI_Op op = group_->job().runtime().ops().of(call_->op, dtype);
  const void* from = input == output ? MPI_IN_PLACE : input;
  if (call_->kind == Kind::all_reduce) {
    return check(MPI_Iallreduce(from, output, count, type, op, comm, request), "MPI_Iallreduce");
  }
  if (group_->rank() != call_->root) {
    from = input;
    output = nullptr;
  }
  check(MPI_Ireduce(from, output, count, type, op, call_->root, comm, request), "MPI_Ireduce");
}

void Transfer::issue_parts(std::vector<MPI_Request>& requests) {
  MPI_Request* request = &requests.emplace_back(MPI_REQUEST_NULL);
  const MPI_Comm comm = group_->comm();
  const auto inputs = call_->exposure().inputs;
  std::byte* const input = inputs.empty() ? nullptr : data_of(inputs[0]);
  std::byte* const output = data_of(call_->exposure().output);
  const MPI_Datatype type = datatype_of(call_->dtype);
  const int mine = counts_[static_cast<std::size_t>(group_->rank())];
  const bool at_root = group_->rank() == call_->root;
  // The same memory for both is allowed in a group of one only, where nothing has to move.
  const bool in_place = group_->size() == 1 && input == output;
  const void* const from = in_place ? MPI_IN_PLACE : input;
  switch (call_->kind) {
    case Kind::all_gather:
      return check(MPI_Iallgatherv(from, mine, type, output, counts_.data(), offsets_.data(), type,
                                   comm, request),
                   "MPI_Iallgatherv");
    case Kind::gather:
      return check(MPI_Igatherv(at_root ? from : input, mine, type, at_root ? output : nullptr,
                                counts_.data(), offsets_.data(), type, call_->root, comm, request),
                   "MPI_Igatherv");
    case Kind::scatter:
      return check(MPI_Iscatterv(at_root ? input : nullptr, counts_.data(), offsets_.data(), type,
                                 at_root && in_place ? MPI_IN_PLACE : output, mine, type,
                                 call_->root, comm, request),
                   "MPI_Iscatterv");
    case Kind::all_to_all:
      return check(MPI_Ialltoall(from, mine, type, output, mine, type, comm, request),
                   "MPI_Ialltoall");
    case Kind::reduce_scatter: {
      const DType dtype = accumulator_of(call_->dtype);
      const MPI_Op op = group_->job().runtime().ops().of(call_->op, dtype);
      // Staged: the own part comes to lie at the front.
      return check(
          MPI_Ireduce_scatter(staged_ ? MPI_IN_PLACE : from, staged_ ? stage_.data() : output,
                              counts_.data(), datatype_of(dtype), op, comm, request),
          "MPI_Ireduce_scatter");
    }
    default:
      return;
  }
}

void Transfer::issue_message(std::vector<MPI_Request>& requests) {
  const bool sends = group_->rank() == 0;
  const MPI_Datatype type = datatype_of(call_->dtype);
  const std::size_t width = size_of(call_->dtype);
  std::byte* const data = data_of(sends ? call_->exposure().inputs[0] : call_->exposure().output);
  const int tag = kDataTag + group_->tag();
  for (std::uint64_t first = 0; first < call_->count; first += kMaxRun) {
    const int count = static_cast<int>(std::min(kMaxRun, call_->count - first));
    MPI_Request* request = &requests.emplace_back(MPI_REQUEST_NULL);
    // Synchronous: a send is over when the receiver has begun to take the data.
    check(sends ? MPI_Issend(data + first * width, count, type, group_->peer(), tag, group_->comm(),
                             request)
                : MPI_Irecv(data + first * width, count, type, group_->peer(), tag, group_->comm(),
                            request),
          sends ? "MPI_Issend" : "MPI_Irecv");
  }
}

void Transfer::finish() {
  if (!reduces() || !has_output()) return;
  if (staged_) return unstage_output();
  if (divisor_ != 1) divide_in_place();
}

void Transfer::divide_in_place() {
  const auto merges = kernel::tree_merges(1);
  for (const Pieces::Piece& piece : call_->exposure().output.pieces) {
    const kernel::Input source{piece.data};
    const kernel::Target target{piece.data};
    kernel::reduce({.op = call_->op,
                    .dtype = call_->dtype,
                    .inputs = {&source, 1},
                    .merges = merges,
                    .targets = {&target, 1},
                    .count = piece.end - piece.begin,
                    .divisor = divisor_});
  }
}

void Transfer::unstage_output() {
  const std::size_t width = size_of(accumulator_of(call_->dtype));
  const auto merges = kernel::tree_merges(1);
  for (const Pieces::Piece& piece : call_->exposure().output.pieces) {
    const kernel::Input source{stage_.data() + piece.begin * width, kernel::Form::partial};
    const kernel::Target target{piece.data};
    kernel::reduce({.op = call_->op,
                    .dtype = call_->dtype,
                    .inputs = {&source, 1},
                    .merges = merges,
                    .targets = {&target, 1},
                    .count = piece.end - piece.begin,
                    .divisor = divisor_});
  }
}

}  // namespace lockstep::mpi
