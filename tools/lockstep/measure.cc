#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "lockstep/coll.h"
#include "pattern.h"

namespace lockstep::tool {
namespace {

using Clock = std::chrono::steady_clock;
using coll::Buffer;
using coll::CallOptions;
using coll::ConstBuffer;
using coll::From;
using coll::Root;
using coll::Session;
using coll::To;
using coll::Work;
using plan::Kind;

/// Elements of a rank, aligned as allocators of tensors do.
class Memory {
 public:
  Memory(DType dtype, std::uint64_t count)
      : dtype_(dtype),
        count_(count),
        bytes_(static_cast<std::byte*>(::operator new (
            std::max<std::size_t>(count* size_of(dtype), 1), std::align_val_t{kAlignment}))) {}

  [[nodiscard]] std::byte* data() const { return bytes_.get(); }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] Buffer buffer() const { return {dtype_, data(), count_}; }
  /// Bits that no pattern has.
  void spoil() const { std::memset(data(), 0xee, count_ * size_of(dtype_)); }

 private:
  static constexpr std::size_t kAlignment = 64;
  struct Free {
    void operator()(std::byte* memory) const noexcept {
      ::operator delete (memory, std::align_val_t{kAlignment});
    }
  };
  DType dtype_;
  std::uint64_t count_;
  std::unique_ptr<std::byte, Free> bytes_;
};

struct Span {
  Clock::time_point start;
  Clock::time_point end;
};

/// One rank's side of a trial.
class RankTrial {
 public:
  RankTrial(const Trial& trial, Session& group)
      : trial_(trial),
        group_(group),
        rank_(group.rank()),
        input_(trial.dtype, trial.shape.input),
        output_(trial.dtype, trial.placement == Placement::in_place ? 0 : trial.shape.output),
        options_{.order = trial.order} {
    const Pattern::Group ranks{trial.ranks};
    for (int rank = 0; rank < trial.ranks; ++rank) {
      inputs_.push_back(reduces(trial.kind) ? Pattern::input_of(trial.op, trial.dtype, ranks, rank)
                                            : Pattern::of_rank(trial.dtype, rank));
    }
    if (reduces(trial.kind)) result_ = Pattern::result_of(trial.op, trial.dtype, ranks);
  }

  Span iterate(std::uint64_t phase) {
    inputs_[static_cast<std::size_t>(rank_)].fill(input_.data(), input_.count(), phase);
    output_.spoil();
    group_.barrier();
    const auto start = Clock::now();
    call();
    const auto end = Clock::now();
    if (trial_.checking == Checking::on) wrong_ += count_wrong(phase);
    return {start, end};
  }

  [[nodiscard]] std::uint64_t wrong() const { return wrong_; }

 private:
  [[nodiscard]] bool in_place() const { return trial_.placement == Placement::in_place; }
  [[nodiscard]] bool at_root() const { return rank_ == trial_.root; }
  [[nodiscard]] const Memory& result() const { return in_place() ? input_ : output_; }
  [[nodiscard]] int next() const { return (rank_ + 1) % trial_.ranks; }
  [[nodiscard]] int previous() const { return (rank_ + trial_.ranks - 1) % trial_.ranks; }

  void call() {
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

  /// Elements of this rank's result that differ from what they must be.
  [[nodiscard]] std::uint64_t count_wrong(std::uint64_t phase) const {
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

  [[nodiscard]] const Pattern& from(int rank) const {
    return inputs_[static_cast<std::size_t>(rank)];
  }

  const Trial& trial_;
  Session& group_;
  int rank_;
  Memory input_;
  Memory output_;
  CallOptions options_;
  std::vector<Pattern> inputs_;  // of each rank
  std::optional<Pattern> result_;
  std::uint64_t wrong_ = 0;
};

/// The algorithm of the newest operation in a session's history ("... by direct at file:7").
std::string newest_algorithm(const std::string& history) {
  const std::size_t by = history.rfind(" by ");
  if (by == std::string::npos) return {};
  const std::size_t begin = by + 4;
  return history.substr(begin, history.find(' ', begin) - begin);
}

}  // namespace

double Timing::quantile(double share) const {
  if (microseconds.empty()) return 0;
  std::vector<double> sorted = microseconds;
  std::sort(sorted.begin(), sorted.end());
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = position - static_cast<double>(below);
  return sorted[below] * (1 - weight) + sorted[above] * weight;
}

Timing measure(const Trial& trial) {
  const auto iterations = static_cast<std::size_t>(trial.iterations);
  // Each rank writes its own row and count; they are read when all ranks are done.
  std::vector<std::vector<Span>> spans(static_cast<std::size_t>(trial.ranks));
  std::vector<std::uint64_t> wrong(static_cast<std::size_t>(trial.ranks));
  Timing timing;
  coll::run_ranks(trial.ranks,
                  [&](Session& group) {
                    RankTrial mine(trial, group);
                    const auto rank = static_cast<std::size_t>(group.rank());
                    spans[rank].reserve(iterations);
                    std::uint64_t phase = 0;
                    for (int i = 0; i < trial.warmups; ++i) mine.iterate(++phase);
                    for (std::size_t i = 0; i < iterations; ++i)
                      spans[rank].push_back(mine.iterate(++phase));
                    wrong[rank] = mine.wrong();
                    // Messages between two ranks are not in the history of the group.
                    if (rank == 0 && trial.kind != Kind::send_receive) {
                      timing.algorithm = newest_algorithm(group.history());
                    }
                    // Nobody leaves while another still measures.
                    group.barrier();
                  },
                  {.algorithms = trial.algorithms});

  for (std::size_t i = 0; i < iterations; ++i) {
    Span whole = spans[0][i];
    for (const auto& row : spans) {
      whole.start = std::min(whole.start, row[i].start);
      whole.end = std::max(whole.end, row[i].end);
    }
    timing.microseconds.push_back(
        std::chrono::duration<double, std::micro>(whole.end - whole.start).count());
  }
  for (const std::uint64_t count : wrong) timing.wrong += count;
  return timing;
}

}  // namespace lockstep::tool
