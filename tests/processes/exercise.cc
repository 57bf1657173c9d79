#include "tests/processes/exercise.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>

#include "kernel/reduce.h"
#include "tests/coll/fixtures.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::processes {
namespace {

using coll::Batch;
using coll::Buffer;
using coll::ConstBuffer;
using coll::From;
using coll::Memory;
using coll::Root;
using coll::Session;
using coll::To;
using coll::WireType;
using coll::Work;

/// A buffer of the kind under test.
class Place {
 public:
  Place(Session& group, Buffers kind, DType dtype, std::size_t count)
      : dtype_(dtype), count_(count) {
    if (kind == Buffers::of_session) {
      memory_ = group.allocate(count * size_of(dtype));
      data_ = memory_.data();
    } else {
      own_.resize(count * size_of(dtype) + 1);
      data_ = own_.data();
    }
  }
  void fill(int replica) {
    const coll::Data data = coll::make_input(dtype_, count_, replica);
    if (count_ > 0) std::memcpy(data_, data.bytes.data(), data.bytes.size());
  }
  [[nodiscard]] Buffer buffer() const { return {dtype_, data_, count_}; }
  [[nodiscard]] std::uint64_t digest() const {
    return XXH3_64bits(data_, count_ * size_of(dtype_));
  }

 private:
  DType dtype_;
  std::size_t count_;
  Memory memory_;
  std::vector<std::byte> own_;
  std::byte* data_ = nullptr;
};

class Exercise {
 public:
  Exercise(Session& group, Buffers kind) : group_(group), kind_(kind) {}

  std::vector<std::string> run() {
    for (const DType dtype : coll::kAllTypes) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
        reductions(dtype, count);
        moves(dtype, count);
      }
    }
    // Beyond slots, with several chunks and a rest.
    reductions(DType::float32, 300'001);
    reductions(DType::bfloat16, 600'001);
    reductions(DType::float64, 300'000);
    moves(DType::int32, 70'001);
    for (const std::size_t count : {0, 1, 1000, 150'001}) rounded(count);
    together();
    return std::move(lines_);
  }

 private:
  Place make(DType dtype, std::size_t count, int replica = -1) {
    Place place(group_, kind_, dtype, count);
    place.fill(replica >= 0 ? replica : group_.rank());
    return place;
  }
  void note(const std::string& what, const Place& place) {
    lines_.push_back(fmt::format("{} {:016x}", what, place.digest()));
  }

  void reductions(DType dtype, std::size_t count) {
    const int last = group_.size() - 1;
    for (const Op op : {Op::sum, Op::product, Op::min, Op::max, Op::mean}) {
      if (!kernel::supports(op, dtype)) continue;
      // They differ from sum and max by what is done with two numbers, not by how those travel.
      if ((op == Op::product || op == Op::min) && count != 1000) continue;
      const std::string what = fmt::format("{} {} {}", to_string(op), to_string(dtype), count);
      const Place in_place = make(dtype, count);
      group_.all_reduce(op, in_place.buffer());
      note("all_reduce in place " + what, in_place);
      const Place input = make(dtype, count);
      const Place output = make(dtype, count, 99);
      group_.all_reduce(op, ConstBuffer(input.buffer()), output.buffer());
      note("all_reduce " + what, output);
      note("input of all_reduce " + what, input);
      const Place reduced = make(dtype, count, 98);
      group_.reduce(op, ConstBuffer(input.buffer()), reduced.buffer(), Root{last});
      if (group_.rank() == last) note("reduce " + what, reduced);
      const Place all = make(dtype, count * static_cast<std::size_t>(group_.size()));
      const Place part = make(dtype, count, 97);
      group_.reduce_scatter(op, ConstBuffer(all.buffer()), part.buffer());
      note("reduce_scatter " + what, part);
    }
  }

  /// Sums that travel in 16 bits.
  void rounded(std::size_t count) {
    for (const WireType wire : {WireType::bf16, WireType::f16}) {
      for (const Op op : {Op::sum, Op::mean}) {
        const std::string what =
            fmt::format("{} {} {}", to_string(op), static_cast<int>(wire), count);
        const Place in_place = make(DType::float32, count);
        group_.all_reduce(op, in_place.buffer(), {.wire = wire});
        note("rounded all_reduce in place " + what, in_place);
        const Place input = make(DType::float32, count);
        const Place output = make(DType::float32, count, 99);
        group_.start_all_reduce(op, ConstBuffer(input.buffer()), output.buffer(), {.wire = wire})
            .wait();
        note("rounded all_reduce " + what, output);
        note("input of rounded all_reduce " + what, input);
      }
    }
  }

  void moves(DType dtype, std::size_t count) {
    const auto ranks = static_cast<std::size_t>(group_.size());
    const int last = group_.size() - 1;
    const std::string what = fmt::format("{} {}", to_string(dtype), count);
    const Place sent = make(dtype, count);
    group_.broadcast(sent.buffer(), Root{last});
    note("broadcast " + what, sent);
    const Place mine = make(dtype, count);
    const Place all = make(dtype, count * ranks, 96);
    group_.all_gather(mine.buffer(), all.buffer());
    note("all_gather " + what, all);
    std::vector<std::uint64_t> counts(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) counts[rank] = count * (rank % 3);
    const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    const auto own = static_cast<std::size_t>(counts[static_cast<std::size_t>(group_.rank())]);
    const Place uneven = make(dtype, own);
    const Place ragged = make(dtype, total, 95);
    group_.all_gather(uneven.buffer(), ragged.buffer(), counts);
    note("all_gather uneven " + what, ragged);
    const Place gathered = make(dtype, count * ranks, 94);
    group_.gather(mine.buffer(), gathered.buffer(), Root{0});
    if (group_.rank() == 0) note("gather " + what, gathered);
    const Place scattered = make(dtype, count, 93);
    const Place source = make(dtype, count * ranks, 7);
    group_.scatter(source.buffer(), scattered.buffer(), Root{last});
    note("scatter " + what, scattered);
    const Place out = make(dtype, count * ranks);
    const Place in = make(dtype, count * ranks, 92);
    group_.all_to_all(out.buffer(), in.buffer());
    note("all_to_all " + what, in);
    if (group_.size() > 1 && group_.rank() < 2) {
      const Place message = make(dtype, count, group_.rank() == 0 ? 5 : 91);
      if (group_.rank() == 0) {
        group_.send(message.buffer(), To{1});
      } else {
        group_.receive(message.buffer(), From{0});
        note("message " + what, message);
      }
    }
    group_.barrier();
  }

  /// Several at a time: works, a batch, a subgroup.
  void together() {
    const Place a = make(DType::float32, 5000);
    const Place b = make(DType::int64, 33);
    Work first = group_.start_all_reduce(Op::sum, a.buffer());
    Work second = group_.start_all_reduce(Op::sum, b.buffer());
    first.wait();
    second.wait();
    note("work", a);
    note("work", b);
    std::vector<Place> parts;
    for (const std::size_t count : {1, 40, 3000, 70'000, 7}) {
      parts.push_back(make(DType::float32, count));
    }
    Batch batch = group_.batch();
    for (const Place& part : parts) batch.all_reduce(Op::mean, part.buffer());
    batch.run();
    for (const Place& part : parts) note("batch", part);
    Session half = group_.split({.color = group_.rank() % 2, .key = -group_.rank()});
    for (const std::size_t count : {400, 40'000}) {
      const Place split = make(DType::float64, count);
      half.all_reduce(Op::sum, split.buffer());
      note("split", split);
    }
    group_.barrier();
  }

  Session& group_;
  Buffers kind_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> exercise(Session& group, Buffers buffers) {
  return Exercise(group, buffers).run();
}

}  // namespace lockstep::processes
