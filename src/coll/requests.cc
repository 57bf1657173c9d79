#include "coll/requests.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <numeric>

#include "kernel/reduce.h"

namespace lockstep::coll {
namespace {

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw InvalidUsage(fmt::format(format, std::forward<Args>(args)...));
}

std::span<const ConstBuffer> one(const ConstBuffer& buffer) { return {&buffer, 1}; }

std::string describe(const ConstBuffer& buffer) {
  return fmt::format("{}[{}]", to_string(buffer.dtype()), buffer.count());
}

void check_memory(const ConstBuffer& buffer, const char* argument) {
  if (buffer.data() == nullptr && buffer.count() > 0) {
    refuse("{} is a null pointer with {} elements", argument, buffer.count());
  }
}

bool overlap(const ConstBuffer& a, const ConstBuffer& b) {
  const auto* first = static_cast<const std::byte*>(a.data());
  const auto* second = static_cast<const std::byte*>(b.data());
  return a.bytes() > 0 && b.bytes() > 0 && first < second + b.bytes() && second < first + a.bytes();
}

enum class InPlace : std::uint8_t { allowed, refused };

void check_overlap(const ConstBuffer& input, const ConstBuffer& output, InPlace in_place) {
  if (!overlap(input, output)) return;
  if (in_place == InPlace::allowed && input.data() == output.data() &&
      input.bytes() == output.bytes())
    return;
  refuse("input and output overlap; they must be {}", in_place == InPlace::allowed
                                                          ? "the same memory or disjoint"
                                                          : "disjoint for this collective");
}

void check_same_type(const ConstBuffer& input, const ConstBuffer& output) {
  if (input.dtype() != output.dtype()) {
    refuse("input is {} but output is {}: the element types must be equal", describe(input),
           describe(output));
  }
}

void check_count(const ConstBuffer& buffer, const char* argument, std::uint64_t expected,
                 const char* rule) {
  if (buffer.count() != expected) {
    refuse("{} has {} elements; it needs {} ({})", argument, buffer.count(), expected, rule);
  }
}

void check_root(const Caller& caller, Root root) { check_peer(caller, root.rank, "root"); }

void begin_reduction(Call& call, const Caller& caller, Op op, std::span<const ConstBuffer> inputs) {
  if (static_cast<int>(inputs.size()) != caller.replicas) {
    refuse("{} input buffer(s) given, but this rank has {} replica(s): give one for each",
           inputs.size(), caller.replicas);
  }
  for (const ConstBuffer& input : inputs) {
    check_memory(input, "input");
    if (input.dtype() != inputs[0].dtype() || input.count() != inputs[0].count()) {
      refuse("the replicas' inputs differ: {} and {}", describe(inputs[0]), describe(input));
    }
  }
  raise_if_error(kernel::check_supported(op, inputs[0].dtype()));
  call.op = op;
  call.reduces = true;
  call.dtype = inputs[0].dtype();
  for (const ConstBuffer& input : inputs) call.add_input(one(input));
}

/// Parts per rank: the caller's own table, or `each` for everybody. Returns their sum.
std::uint64_t fill_counts(Call& call, const Caller& caller, Counts counts, std::uint64_t each) {
  if (counts.empty()) {
    call.count = each;
    return each * static_cast<std::uint64_t>(caller.size);
  }
  if (static_cast<int>(counts.size()) != caller.size) {
    refuse("counts has {} entries; the group has {} ranks", counts.size(), caller.size);
  }
  // Equal counts are the same request whether they are given or not.
  const auto as_first = [&](std::uint64_t count) { return count == counts[0]; };
  if (std::all_of(counts.begin(), counts.end(), as_first)) {
    call.count = counts[0];
    return counts[0] * counts.size();
  }
  call.counts.assign(counts.begin(), counts.end());
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

/// What is to travel in place of the elements, if anything.
std::optional<DType> wire_of(const Call& call, WireType wire) {
  if (wire == WireType::same) return std::nullopt;
  const DType type = wire == WireType::bf16 ? DType::bfloat16 : DType::float16;
  const bool adds = call.reduces && (call.op == Op::sum || call.op == Op::mean);
  if (call.kind != plan::Kind::all_reduce || !adds || call.dtype != DType::float32) {
    std::string what = plan::to_string(call.kind);
    if (call.reduces) what += fmt::format(" {}", to_string(call.op));
    if (call.kind != plan::Kind::barrier) what += fmt::format(" {}", to_string(call.dtype));
    refuse("wire is {}, which is for all_reduce with sum or mean of float32; this is {}",
           to_string(type), what);
  }
  return type;
}

std::uint64_t part_of(Counts counts, int rank, std::uint64_t each) {
  return counts.empty() ? each : counts[static_cast<std::size_t>(rank)];
}

/// The whole divided among the ranks, where counts are not given.
std::uint64_t equal_part(const Caller& caller, Counts counts, std::uint64_t whole,
                         const char* argument) {
  if (counts.empty() && whole % static_cast<std::uint64_t>(caller.size) != 0) {
    refuse("{} has {} elements, which {} ranks cannot share equally: give counts", argument, whole,
           caller.size);
  }
  return whole / static_cast<std::uint64_t>(caller.size);
}

}  // namespace

void check_peer(const Caller& caller, int rank, const char* argument) {
  if (rank < 0 || rank >= caller.size) {
    refuse("{} is rank {}; the group has ranks 0 to {}", argument, rank, caller.size - 1);
  }
}

void fill_options(Call& call, const CallOptions& options, Here here) {
  if (options.timeout.count() < 0) refuse("timeout is negative: the call's time is over already");
  call.timeout = options.timeout;
  call.background = options.background;
  call.order = options.order == SumOrder::any ? plan::Order::any : plan::Order::fixed_tree;
  call.wire = wire_of(call, options.wire);
  call.here = here;
  call.name = wire::Name(options.name);
  if (!options.description.empty()) {
    call.description = wire::Description(options.description, here);
  }
  if (!options.shape.empty()) {
    call.shape_hash =
        XXH3_64bits_withSeed(options.shape.data(), options.shape.size_bytes(), call.shape_hash);
  }
}

void fill_all_reduce(Call& call, const Caller& caller, Op op, const Inputs& inputs, Buffer output) {
  call.kind = plan::Kind::all_reduce;
  const auto list = inputs.list();
  begin_reduction(call, caller, op, list);
  check_memory(output, "output");
  check_same_type(list[0], output);
  check_count(output, "output", list[0].count(), "as many as the input");
  for (const ConstBuffer& input : list) {
    check_overlap(input, output, &input == list.data() ? InPlace::allowed : InPlace::refused);
  }
  call.count = output.count();
  call.set_output(one(output));
}

void fill_reduce(Call& call, const Caller& caller, Op op, const Inputs& inputs, Buffer output,
                 Root root) {
  call.kind = plan::Kind::reduce;
  check_root(caller, root);
  const auto list = inputs.list();
  begin_reduction(call, caller, op, list);
  if (caller.rank == root.rank) {
    check_memory(output, "output");
    check_same_type(list[0], output);
    check_count(output, "output", list[0].count(), "as many as the input");
    for (const ConstBuffer& input : list) {
      check_overlap(input, output, &input == list.data() ? InPlace::allowed : InPlace::refused);
    }
    call.set_output(one(output));
  }
  call.count = list[0].count();
  call.root = root.rank;
}

void fill_broadcast(Call& call, const Caller& caller, Buffer buffer, Root root) {
  call.kind = plan::Kind::broadcast;
  check_root(caller, root);
  check_memory(buffer, "buffer");
  call.dtype = buffer.dtype();
  call.count = buffer.count();
  call.root = root.rank;
  call.add_input(one(buffer));
  call.set_output(one(buffer));
}

void fill_all_gather(Call& call, const Caller& caller, ConstBuffer input, Buffer output,
                     Counts counts) {
  call.kind = plan::Kind::all_gather;
  check_memory(input, "input");
  check_memory(output, "output");
  check_same_type(input, output);
  check_overlap(input, output, caller.size == 1 ? InPlace::allowed : InPlace::refused);
  const std::uint64_t sum = fill_counts(call, caller, counts, input.count());
  check_count(input, "input", part_of(counts, caller.rank, input.count()), "counts[rank]");
  check_count(output, "output", sum, "the inputs of all ranks together");
  call.dtype = input.dtype();
  call.add_input(one(input));
  call.set_output(one(output));
}

void fill_reduce_scatter(Call& call, const Caller& caller, Op op, const Inputs& inputs,
                         Buffer output, Counts counts) {
  call.kind = plan::Kind::reduce_scatter;
  const auto list = inputs.list();
  begin_reduction(call, caller, op, list);
  check_memory(output, "output");
  check_same_type(list[0], output);
  for (const ConstBuffer& input : list) {
    check_overlap(input, output,
                  caller.size == 1 && &input == list.data() ? InPlace::allowed : InPlace::refused);
  }
  const std::uint64_t each = equal_part(caller, counts, list[0].count(), "input");
  const std::uint64_t sum = fill_counts(call, caller, counts, each);
  check_count(list[0], "input", sum, "the parts of all ranks together");
  check_count(output, "output", part_of(counts, caller.rank, each), "this rank's part");
  call.set_output(one(output));
}

void fill_gather(Call& call, const Caller& caller, ConstBuffer input, Buffer output, Root root,
                 Counts counts) {
  call.kind = plan::Kind::gather;
  check_root(caller, root);
  check_memory(input, "input");
  const std::uint64_t sum = fill_counts(call, caller, counts, input.count());
  check_count(input, "input", part_of(counts, caller.rank, input.count()), "counts[rank]");
  call.dtype = input.dtype();
  call.root = root.rank;
  call.add_input(one(input));
  if (caller.rank != root.rank) return;
  check_memory(output, "output");
  check_same_type(input, output);
  check_overlap(input, output, caller.size == 1 ? InPlace::allowed : InPlace::refused);
  check_count(output, "output", sum, "the inputs of all ranks together");
  call.set_output(one(output));
}

void fill_scatter(Call& call, const Caller& caller, ConstBuffer input, Buffer output, Root root,
                  Counts counts) {
  call.kind = plan::Kind::scatter;
  check_root(caller, root);
  check_memory(output, "output");
  const std::uint64_t sum = fill_counts(call, caller, counts, output.count());
  check_count(output, "output", part_of(counts, caller.rank, output.count()), "counts[rank]");
  call.dtype = output.dtype();
  call.root = root.rank;
  if (caller.rank == root.rank) {
    check_memory(input, "input");
    check_same_type(input, output);
    check_overlap(input, output, caller.size == 1 ? InPlace::allowed : InPlace::refused);
    check_count(input, "input", sum, "the parts of all ranks together");
    call.add_input(one(input));
  }
  call.set_output(one(output));
}

void fill_all_to_all(Call& call, const Caller& caller, ConstBuffer input, Buffer output) {
  call.kind = plan::Kind::all_to_all;
  check_memory(input, "input");
  check_memory(output, "output");
  check_same_type(input, output);
  check_overlap(input, output, caller.size == 1 ? InPlace::allowed : InPlace::refused);
  check_count(output, "output", input.count(), "as many as the input");
  call.count = equal_part(caller, {}, input.count(), "input");
  call.dtype = input.dtype();
  call.add_input(one(input));
  call.set_output(one(output));
}

void fill_barrier(Call& call) { call.kind = plan::Kind::barrier; }

namespace {

void begin_message(Call& call, const ConstBuffer& buffer) {
  call.kind = plan::Kind::send_receive;
  check_memory(buffer, "buffer");
  call.root = 0;
  call.to = 1;
  call.dtype = buffer.dtype();
  call.count = buffer.count();
}

}  // namespace

void fill_send(Call& call, ConstBuffer input) {
  begin_message(call, input);
  call.add_input(one(input));
}

void fill_receive(Call& call, Buffer output) {
  begin_message(call, output);
  call.set_output(one(output));
}

}  // namespace lockstep::coll
