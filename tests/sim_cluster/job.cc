#include "tests/sim_cluster/job.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "kernel/reduce.h"
#include "kernel/round.h"
#include "sim/random.h"
#include "transport/memory.h"

namespace lockstep::simulated {
namespace {

using plan::Kind;

constexpr std::size_t kFence = 16;
constexpr std::byte kFenceByte{0xCD};

std::uint64_t sum(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

std::uint64_t input_count(const plan::Request& request, int rank) {
  const auto own = request.counts[static_cast<std::size_t>(rank)];
  switch (request.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
    case Kind::broadcast:
    case Kind::send_receive:
      return request.count;
    case Kind::all_gather:
    case Kind::gather:
      return own;
    case Kind::reduce_scatter:
    case Kind::scatter:
      return sum(request.counts);
    case Kind::all_to_all:
      return request.count * request.counts.size();
    case Kind::barrier:
      break;
  }
  return 0;
}

std::uint64_t output_count(const plan::Request& request, int rank) {
  const auto own = request.counts[static_cast<std::size_t>(rank)];
  switch (request.kind) {
    case Kind::all_reduce:
    case Kind::broadcast:
      return request.count;
    case Kind::reduce:
      return rank == request.root ? request.count : 0;
    case Kind::all_gather:
      return sum(request.counts);
    case Kind::gather:
      return rank == request.root ? sum(request.counts) : 0;
    case Kind::reduce_scatter:
    case Kind::scatter:
      return own;
    case Kind::all_to_all:
      return request.count * request.counts.size();
    case Kind::send_receive:
      return rank == request.to ? request.count : 0;
    case Kind::barrier:
      break;
  }
  return 0;
}

/// Values of very different magnitude, so that another order of additions gives other bits.
Bytes input_values(const Task& task, int replica, std::uint64_t count) {
  sim::Random random(task.values + static_cast<std::uint64_t>(replica));
  const std::size_t width = size_of(task.dtype);
  Bytes bytes(count * width);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t drawn = random.next();
    const float value = std::ldexp(1.0F + static_cast<float>(drawn & 0xFFFFFF) * 0x1p-24F,
                                   static_cast<int>((drawn >> 24) % 12) - 6) *
                        ((drawn >> 40) % 2 == 0 ? 1.0F : -1.0F);
    std::byte* at = bytes.data() + i * width;
    if (task.dtype == DType::float32) {
      std::memcpy(at, &value, width);
    } else if (task.dtype == DType::bfloat16) {
      const BFloat16 narrow = kernel::to_bfloat16(value);
      std::memcpy(at, &narrow, width);
    } else {
      std::memcpy(at, &drawn, width);
    }
  }
  return bytes;
}

double divisor_of(const Task& task, const plan::Layout& layout) {
  return task.op == Op::mean ? layout.replicas() : 1;
}

Bytes reduce_all(const Task& task, const plan::Layout& layout, std::uint64_t count) {
  std::vector<Bytes> inputs;
  std::vector<kernel::Input> pointers;
  for (int replica = 0; replica < layout.replicas(); ++replica) {
    inputs.push_back(input_values(task, replica, count));
    pointers.push_back({inputs.back().data(), kernel::Form::value});
  }
  Bytes result(count * size_of(task.dtype));
  const kernel::Target target{result.data(), kernel::Form::value};
  const auto merges = kernel::tree_merges(layout.replicas());
  if (count == 0) return result;
  kernel::reduce({.op = task.op,
                  .dtype = task.dtype,
                  .inputs = pointers,
                  .merges = merges,
                  .targets = {&target, 1},
                  .count = count,
                  .weights = {},
                  .divisor = divisor_of(task, layout)});
  return result;
}

Bytes slice(const Bytes& bytes, std::uint64_t from, std::uint64_t count, std::size_t width) {
  const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(from * width);
  return Bytes(first, first + static_cast<std::ptrdiff_t>(count * width));
}

std::vector<Bytes> run_alone(const Task& task, const plan::Layout& layout) {
  const int ranks = layout.ranks();
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto group = std::make_shared<transport::MemoryGroup>(
      std::make_shared<transport::MemoryGeneration>(ranks), members);
  std::vector<std::unique_ptr<transport::MemoryLink>> links;
  std::vector<std::unique_ptr<Job>> jobs;
  std::vector<coll::Operation> operations(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    links.push_back(std::make_unique<transport::MemoryLink>(group, rank));
    jobs.push_back(std::make_unique<Job>(task, layout, rank, 1));
    jobs.back()->start(operations[static_cast<std::size_t>(rank)]);
  }
  std::vector<bool> done(static_cast<std::size_t>(ranks), false);
  for (int round = 0; round < 100'000; ++round) {
    bool all = true;
    for (std::size_t rank = 0; rank < links.size(); ++rank) {
      if (!done[rank]) done[rank] = operations[rank].poll(*links[rank]) == coll::State::done;
      all = all && done[rank];
    }
    if (all) break;
  }
  std::vector<Bytes> outputs;
  outputs.reserve(jobs.size());
  for (const auto& job : jobs) outputs.emplace_back(job->output().begin(), job->output().end());
  return outputs;
}

}  // namespace

Job::Job(const Task& task, const plan::Layout& layout, int rank, std::uint64_t sequence)
    : plan_(task.algorithm->make(task.request, layout, rank)),
      descriptor_(descriptor_of(task, sequence)) {
  const std::size_t width = size_of(task.dtype);
  const std::uint64_t count = input_count(task.request, rank);
  for (int local = 0; local < layout.replicas(rank); ++local) {
    inputs_.push_back(input_values(task, layout.first(rank) + local, count));
    inputs_.back().resize(count * width + kFence, kFenceByte);
  }
  const std::uint64_t out = output_count(task.request, rank);
  output_bytes_ = out * width;
  const Kind kind = task.request.kind;
  in_place_ = task.in_place && out == count && out > 0 &&
              (kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::broadcast);
  if (!in_place_) output_.assign(output_bytes_ + kFence, kFenceByte);
  scratch_.resize(plan_.scratch_count * width);
  partial_.resize(plan_.partial_count * size_of(accumulator_of(task.dtype)));
  for (Bytes& input : inputs_) pieces_.push_back({input.data(), 0, count});
  pieces_.push_back({in_place_ ? inputs_[0].data() : output_.data(), 0, out});
  for (const auto& piece : pieces_) views_.push_back({{&piece, 1}});
  const std::span<const transport::Pieces> views = views_;
  bindings_ = {.dtype = task.dtype,
               .op = task.op,
               .divisor = divisor_of(task, layout),
               .inputs = views.first(inputs_.size()),
               .output = views_.back(),
               .scratch = scratch_.data(),
               .partial = partial_.data()};
  exposure_ = {.inputs = views.first(inputs_.size()), .output = views_.back()};
}

void Job::start(coll::Operation& operation) {
  operation.start(plan_, bindings_, descriptor_, exposure_);
}

std::span<const std::byte> Job::output() const noexcept {
  return std::span(in_place_ ? inputs_[0] : output_).first(output_bytes_);
}

bool Job::fence_intact() const noexcept {
  const auto intact = [](const Bytes& bytes) {
    return std::all_of(bytes.end() - kFence, bytes.end(),
                       [](std::byte b) { return b == kFenceByte; });
  };
  return std::all_of(inputs_.begin(), inputs_.end(), intact) && (in_place_ || intact(output_));
}

std::vector<Bytes> expected_outputs(const Task& task, const plan::Layout& layout) {
  const plan::Request& request = task.request;
  const std::size_t width = size_of(task.dtype);
  const int ranks = layout.ranks();
  if (task.algorithm->order == plan::Order::any) return run_alone(task, layout);

  // Without a reduction only a rank's first replica has a say.
  const auto input_of = [&](int rank) {
    return input_values(task, layout.first(rank), input_count(request, rank));
  };
  std::vector<Bytes> outputs(static_cast<std::size_t>(ranks));
  Bytes whole;
  if (request.kind == Kind::all_reduce || request.kind == Kind::reduce) {
    whole = reduce_all(task, layout, request.count);
  } else if (request.kind == Kind::reduce_scatter) {
    whole = reduce_all(task, layout, sum(request.counts));
  } else if (request.kind == Kind::all_gather || request.kind == Kind::gather) {
    for (int rank = 0; rank < ranks; ++rank) {
      const Bytes part = input_of(rank);
      whole.insert(whole.end(), part.begin(), part.end());
    }
  } else {
    whole = input_of(request.root);
  }
  std::uint64_t offset = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    Bytes& output = outputs[static_cast<std::size_t>(rank)];
    const std::uint64_t count = output_count(request, rank);
    if (request.kind == Kind::reduce_scatter || request.kind == Kind::scatter) {
      output = slice(whole, offset, count, width);
      offset += count;
    } else if (request.kind == Kind::all_to_all) {
      for (int from = 0; from < ranks; ++from) {
        const Bytes block = slice(input_of(from), static_cast<std::uint64_t>(rank) * request.count,
                                  request.count, width);
        output.insert(output.end(), block.begin(), block.end());
      }
    } else if (count > 0) {
      output = whole;
    }
  }
  return outputs;
}

}  // namespace lockstep::simulated
