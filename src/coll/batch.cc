#include "lockstep/coll/batch.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "coll/requests.h"
#include "coll/session_impl.h"

namespace lockstep::coll {
namespace {

/// Operations that become one.
struct Fused {
  plan::Kind kind;
  Op op;
  DType dtype;
  int root;
  std::vector<std::vector<ConstBuffer>> inputs;  // by replica
  std::vector<ConstBuffer> outputs;

  void add(std::span<const ConstBuffer> input, const ConstBuffer& output) {
    // All or nothing, if memory is short.
    inputs.resize(input.size());
    for (auto& each : inputs) each.reserve(outputs.size() + 1);
    outputs.reserve(outputs.size() + 1);
    for (std::size_t i = 0; i < input.size(); ++i) inputs[i].push_back(input[i]);
    outputs.push_back(output);
  }
};

}  // namespace

struct Batch::Parts {
  std::vector<Fused> fused;

  Fused& like(plan::Kind kind, Op op, DType dtype, int root) {
    const auto same = [&](const Fused& f) {
      return f.kind == kind && f.op == op && f.dtype == dtype && f.root == root;
    };
    const auto found = std::find_if(fused.begin(), fused.end(), same);
    if (found != fused.end()) return *found;
    return fused.emplace_back(Fused{kind, op, dtype, root, {}, {}});
  }
};

Batch::Batch(std::shared_ptr<Session::Impl> session)
    : session_(std::move(session)), parts_(std::make_unique<Parts>()) {}
Batch::Batch(Batch&&) noexcept = default;
Batch& Batch::operator=(Batch&&) noexcept = default;
Batch::~Batch() = default;

Batch::Parts& Batch::open() {
  if (!parts_) throw InvalidUsage("this batch has been run already: make a new one");
  return *parts_;
}

void Batch::all_reduce(Op op, Buffer in_place) { all_reduce(op, in_place, in_place); }

void Batch::all_reduce(Op op, Inputs inputs, Buffer output) {
  session_->naming_shortages([&] {
    Call checked;
    fill_all_reduce(
        checked, {session_->rank(), session_->size(), session_->spec().replicas[session_->rank()]},
        op, inputs, output);
    open().like(plan::Kind::all_reduce, op, output.dtype(), -1).add(inputs.list(), output);
  });
}

void Batch::broadcast(Buffer buffer, Root root) {
  session_->naming_shortages([&] {
    Call checked;
    fill_broadcast(checked, {session_->rank(), session_->size(), 1}, buffer, root);
    const ConstBuffer& input = buffer;
    open().like(plan::Kind::broadcast, Op::sum, buffer.dtype(), root.rank).add({&input, 1}, buffer);
  });
}

void Batch::run(const CallOptions& options, Here here) {
  session_->naming_shortages([&] { session_->carry_out(*fuse(options, here)); });
}

Work Batch::start(const CallOptions& options, Here here) {
  return session_->naming_shortages([&] { return session_->submit(fuse(options, here)); });
}

std::shared_ptr<Work::Shared> Batch::fuse(const CallOptions& options, Here here) {
  open();
  const std::unique_ptr<Parts> parts = std::move(parts_);
  auto work = std::make_shared<Work::Shared>();
  for (const Fused& fused : parts->fused) {
    if (fused.outputs.empty()) continue;  // there was no memory to add one
    Call& call = work->calls.emplace_back().call;
    call.kind = fused.kind;
    call.op = fused.op;
    call.reduces = fused.kind == plan::Kind::all_reduce;
    call.dtype = fused.dtype;
    call.root = fused.root;
    for (const std::vector<ConstBuffer>& input : fused.inputs) call.add_input(input);
    call.set_output(fused.outputs);
    // The pieces are part of what the ranks must agree on.
    for (const ConstBuffer& output : fused.outputs) {
      const std::uint64_t size = output.count();
      call.count += size;
      call.shape_hash = XXH3_64bits_withSeed(&size, sizeof(size), call.shape_hash + 1);
    }
    fill_options(call, options, here);
  }
  return work;
}

}  // namespace lockstep::coll
