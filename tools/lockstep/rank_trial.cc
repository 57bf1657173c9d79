#include "rank_trial.h"

namespace lockstep::tool {

using coll::Buffer;
using coll::ConstBuffer;
using coll::From;
using coll::Root;
using coll::Session;
using coll::To;
using coll::Work;
using plan::Kind;

RankTrial::RankTrial(const Trial& trial, Session& group)
    : trial_(trial),
      group_(group),
      rank_(group.rank()),
      input_(group, trial.memory, trial.dtype, trial.shape.input),
      output_(group, trial.memory, trial.dtype,
              trial.placement == Placement::in_place ? 0 : trial.shape.output),
      options_{.order = trial.order, .wire = trial.wire} {
  const Pattern::Group ranks{trial.ranks};
  for (int rank = 0; rank < trial.ranks; ++rank) {
    inputs_.push_back(reduces(trial.kind) ? Pattern::input_of(trial.op, trial.dtype, ranks, rank)
                                          : Pattern::of_rank(trial.dtype, rank));
  }
  if (reduces(trial.kind)) result_ = Pattern::result_of(trial.op, trial.dtype, ranks);
}

RankTrial::Span RankTrial::iterate(std::uint64_t phase) {
  inputs_[static_cast<std::size_t>(rank_)].fill(input_.data(), input_.count(), phase);
  output_.spoil();
  group_.barrier();
  const auto start = Clock::now();
  call();
  const auto end = Clock::now();
  if (trial_.checking == Checking::on) wrong_ += count_wrong(phase);
  return {start, end};
}

void RankTrial::call() {
  const ConstBuffer input = input_.buffer();
  const Buffer output = result().buffer();
  const Buffer root_output = at_root() ? output : Buffer();
  const Root root{trial_.root};
  switch (trial_.kind) {
    case Kind::all_reduce:
      return group_.all_reduce(trial_.op, input, output, options_);
    case Kind::reduce:
      return group_.reduce(trial_.op, input, root_output, root, options_);
    case Kind::broadcast:
      return group_.broadcast(output, root, options_);
    case Kind::all_gather:
      return group_.all_gather(input, output, {}, options_);
    case Kind::reduce_scatter:
      return group_.reduce_scatter(trial_.op, input, output, {}, options_);
    case Kind::gather:
      return group_.gather(input, root_output, root, {}, options_);
    case Kind::scatter:
      return group_.scatter(at_root() ? input : ConstBuffer(), output, root, {}, options_);
    case Kind::all_to_all:
      return group_.all_to_all(input, output, options_);
    case Kind::barrier:
      return group_.barrier(options_);
    case Kind::send_receive: {  // everybody to the next, all at once
      Work sent = group_.start_send(input, To{next()}, options_);
      group_.receive(output, From{previous()}, options_);
      return sent.wait();
    }
  }
}

std::uint64_t RankTrial::count_wrong(std::uint64_t phase) const {
  const std::byte* data = result().data();
  const std::uint64_t count = trial_.shape.count;
  const std::uint64_t mine = phase + static_cast<std::uint64_t>(rank_) * count;
  const std::size_t width = size_of(trial_.dtype);
  std::uint64_t wrong = 0;
  switch (trial_.kind) {
    case Kind::all_reduce:
      return result_->wrong(data, count, phase);
    case Kind::reduce:
      return at_root() ? result_->wrong(data, count, phase) : 0;
    case Kind::reduce_scatter:
      return result_->wrong(data, count, mine);
    case Kind::broadcast:
      return from(trial_.root).wrong(data, count, phase);
    case Kind::scatter:
      return from(trial_.root).wrong(data, count, mine);
    case Kind::send_receive:
      return from(previous()).wrong(data, count, phase);
    case Kind::barrier:
      return 0;
    case Kind::gather:
    case Kind::all_gather:
    case Kind::all_to_all:
      break;
  }
  if (trial_.kind == Kind::gather && !at_root()) return 0;
  for (int rank = 0; rank < trial_.ranks; ++rank) {
    const std::byte* part = data + static_cast<std::uint64_t>(rank) * count * width;
    wrong += from(rank).wrong(part, count, trial_.kind == Kind::all_to_all ? mine : phase);
  }
  return wrong;
}

}  // namespace lockstep::tool
